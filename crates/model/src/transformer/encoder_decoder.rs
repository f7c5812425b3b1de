//! The encoder–decoder transformer: source token ids and target token ids in, logits of the target out.
//!
//! ```text
//! source ─► embedding ─► block × encoder_layers ─► norm ─► memory
//!                                                             │ cross-attention
//! target ─► embedding ─► block × decoder_layers ◄─────────────┘
//!                              └─► norm ─► head ─► logits
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `config` | [`EncoderDecoderSettings`]: an encoder–decoder in the words of T5 |
//! | `t5` | the initial weights of T5 |

mod config;
pub(crate) mod t5;

pub use crate::config::RelativePositions;
pub use config::EncoderDecoderSettings;

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Bool, Int, Tensor};

use emberlm_kernels::{AttentionMask, Backend, HeadLossOptions};

use crate::nn::context::{StackContext, StackMemory};
use crate::nn::kv_cache::KvCache;
use crate::transformer::model::Transformer;

/// A source as the decoder attends to it: the encoder's states as keys and values of every block's cross-attention.
#[derive(Clone, Debug)]
pub struct EncodedSource<B: BurnBackend> {
    states: Tensor<B, 3>,
    memory: StackMemory<B>,
}

impl<B: Backend> EncodedSource<B> {
    /// The encoder's final hidden states, `[batch, source, d_model]`. States at padding tokens have no meaning.
    pub fn states(&self) -> Tensor<B, 3> {
        self.states.clone()
    }

    /// The keys and values of the decoder's cross-attentions.
    pub(crate) fn memory(&self) -> &StackMemory<B> {
        &self.memory
    }

    /// The input of the decoder in addition to its tokens.
    fn context(&self) -> StackContext<'_, B> {
        StackContext {
            memory: Some(&self.memory),
            ..StackContext::default()
        }
    }

    /// Returns the sources with the given numbers, in this order; a number may occur several times.
    pub fn select(&self, rows: &[usize]) -> Self {
        let device = self.states.device();
        let indices = crate::nn::kv_cache::row_indices(rows, &device);
        Self {
            states: self.states.clone().select(0, indices.clone()),
            memory: self.memory.select(&indices),
        }
    }
}

/// The input of the encoder in addition to its tokens.
fn padded<B: Backend>(padding: Option<Tensor<B, 2, Bool>>) -> StackContext<'static, B> {
    let mask = AttentionMask {
        padding,
        ..AttentionMask::default()
    };
    mask.into()
}

impl<B: Backend> Transformer<B> {
    /// Runs the encoder over sources `[batch, source]`. `padding` is false at padding tokens, `[batch, source]`; no
    /// token attends to them. Ids must be below `vocab_size`; [`TransformerConfig::check_tokens`](crate::TransformerConfig::check_tokens) checks input.
    pub fn encode_source(
        &self,
        source: Tensor<B, 2, Int>,
        padding: Option<Tensor<B, 2, Bool>>,
    ) -> EncodedSource<B> {
        let x = self.embeddings.forward(&source.into(), 0);
        let states = match &self.encoder {
            Some(encoder) => encoder.run(x, padded(padding.clone()), None),
            None => x,
        };
        EncodedSource {
            memory: self.stack.memory(states.clone(), padding),
            states,
        }
    }

    /// The decoder's final hidden states for target tokens `[batch, target]` that continue the cached ones.
    pub(crate) fn target_hidden(
        &self,
        target: Tensor<B, 2, Int>,
        source: &EncodedSource<B>,
        cache: Option<&mut KvCache<B>>,
    ) -> Tensor<B, 3> {
        let x = self.embeddings.forward(&target.into(), 0);
        self.stack.run(x, source.context(), cache)
    }

    /// Computes the logits of every position, `[batch, target]` to `[batch, target, vocab_size]`. The first target
    /// token is the start token, as in [`Transformer::shifted_right`].
    pub fn decode(&self, target: Tensor<B, 2, Int>, source: &EncodedSource<B>) -> Tensor<B, 3> {
        let hidden = self.target_hidden(target, source, None);
        self.lm_head.forward(hidden, &self.embeddings.tokens)
    }

    /// Computes the logits of every position of target tokens that continue the cached ones, and adds the tokens to the
    /// cache.
    pub fn decode_cached(
        &self,
        target: Tensor<B, 2, Int>,
        source: &EncodedSource<B>,
        cache: &mut KvCache<B>,
    ) -> Tensor<B, 3> {
        let hidden = self.target_hidden(target, source, Some(cache));
        self.lm_head.forward(hidden, &self.embeddings.tokens)
    }

    /// Logits of the last position only, `[batch, vocab_size]`; otherwise as [`Transformer::decode_cached`].
    pub fn next_target_logits(
        &self,
        target: Tensor<B, 2, Int>,
        source: &EncodedSource<B>,
        cache: &mut KvCache<B>,
    ) -> Tensor<B, 2> {
        let hidden = self.target_hidden(target, source, Some(cache));
        let [_, seq, _] = hidden.dims();
        let last = hidden.narrow(1, seq - 1, 1); // [batch, 1, d_model]
        let logits = self.lm_head.forward(last, &self.embeddings.tokens);
        logits.squeeze_dim(1)
    }

    /// The decoder's input for labels `[batch, target]`: the start token, then all labels but the last. Ignored labels,
    /// which are below 0, become padding tokens.
    pub fn shifted_right(&self, labels: Tensor<B, 2, Int>) -> Tensor<B, 2, Int> {
        let start = self.config().start_token().unwrap_or(0);
        let padding = self.config().padding_token();
        let [batch, seq] = labels.dims();
        let device = labels.device();
        let start = Tensor::full([batch, 1], i64::from(start), &device);
        let shifted = match seq {
            0 | 1 => start,
            _ => Tensor::cat(vec![start, labels.narrow(1, 0, seq - 1)], 1),
        };
        let ignored = shifted.clone().lower_elem(0);
        shifted.mask_fill(ignored, i64::from(padding))
    }

    /// The cross-entropy in nats of labels `[batch, target]`, summed over those that are not below 0, `[1]`.
    pub fn target_loss_sum(
        &self,
        labels: Tensor<B, 2, Int>,
        source: &EncodedSource<B>,
    ) -> Tensor<B, 1> {
        let hidden = self.target_hidden(self.shifted_right(labels.clone()), source, None);
        self.training_loss_sum_of(hidden, labels, HeadLossOptions::default())
    }

    /// The attention weights of the encoder after the softmax, `[batch, heads, source, source]` per block.
    pub fn encoder_attention_weights(
        &self,
        source: Tensor<B, 2, Int>,
        padding: Option<Tensor<B, 2, Bool>>,
    ) -> Vec<Tensor<B, 4>> {
        let x = self.embeddings.forward(&source.into(), 0);
        let encoder = self.encoder.as_ref();
        encoder.map_or_else(Vec::new, |encoder| {
            encoder.run_attention_weights(x, padded(padding))
        })
    }

    /// The weights of the decoder's self-attentions after the softmax, `[batch, heads, target, target]` per block. The
    /// first target token is the start token.
    pub fn decoder_attention_weights(
        &self,
        target: Tensor<B, 2, Int>,
        source: &EncodedSource<B>,
    ) -> Vec<Tensor<B, 4>> {
        let x = self.embeddings.forward(&target.into(), 0);
        self.stack.run_attention_weights(x, source.context())
    }

    /// The weights of the decoder's cross-attentions after the softmax, `[batch, heads, target, source]` per block. The
    /// first target token is the start token.
    pub fn cross_attention_weights(
        &self,
        target: Tensor<B, 2, Int>,
        source: &EncodedSource<B>,
    ) -> Vec<Tensor<B, 4>> {
        let x = self.embeddings.forward(&target.into(), 0);
        self.stack.run_cross_weights(x, source.context())
    }
}
