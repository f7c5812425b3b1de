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
//! | `config` | [`EncoderDecoderSettings`]: a configuration as written |

mod config;

pub use crate::config::RelativePositions;
pub use config::EncoderDecoderSettings;

use burn::module::{Module, ParamId};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Bool, Device, Int, Tensor};

use emberlm_kernels::{AttentionMask, Backend, HeadLossOptions, Precision};

use crate::config::Init;
use crate::nn::block::Block;
use crate::nn::context::{StackContext, StackMemory};
use crate::nn::embeddings::Embeddings;
use crate::nn::kv_cache::KvCache;
use crate::nn::lm_head::LmHead;
use crate::nn::stack::Stack;
use crate::params::{ParamMapper, changed, map_params};
use crate::transformer::checked::TransformerConfig;

/// An encoder–decoder with its weights.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use emberlm_model::TransformerConfig;
/// use emberlm_model::encoder_decoder::EncoderDecoderSettings;
///
/// let settings = EncoderDecoderSettings { vocab_size: 100, ..EncoderDecoderSettings::new(32, 4) };
/// let device = Default::default();
/// let model = TransformerConfig::try_from(settings)?.init_encoder_decoder::<Flex>(1, &device);
/// let source = Tensor::from_data([[1, 2, 3], [4, 5, 0]], &device);
/// let padding = Tensor::from_data([[true, true, true], [true, true, false]], &device);
/// let labels = Tensor::from_data([[7, 8, 9, 1], [6, 1, -100, -100]], &device);
/// let memory = model.encode(source, Some(padding));
/// assert_eq!(model.forward(model.shifted_right(labels), &memory).dims(), [2, 4, 100]);
/// # Ok::<(), emberlm_model::ConfigError>(())
/// ```
#[derive(Module, Debug)]
pub struct EncoderDecoder<B: BurnBackend> {
    /// Maps tokens of the source and of the target to vectors.
    pub embeddings: Embeddings<B>,
    /// The blocks of the encoder; every token attends to every token.
    pub encoder: Stack<B>,
    /// The blocks of the decoder, with cross-attention to the encoder's states.
    pub decoder: Stack<B>,
    /// Maps the decoder's states to logits.
    pub lm_head: LmHead<B>,
    #[module(skip)]
    config: TransformerConfig,
}

impl TransformerConfig {
    /// Builds an encoder–decoder with its initial weights, which depend only on the configuration and `seed`. They are
    /// those of the T5 paper's code: embeddings N(0, 1), other matrices N(0, 1/inputs), queries divided by `√head_dim`
    /// in addition, because the scores have no factor.
    pub fn init_encoder_decoder<B: Backend>(
        &self,
        seed: u64,
        device: &Device<B>,
    ) -> EncoderDecoder<B> {
        let mut model = self.initialized_encoder_decoder(Some(seed), device);
        let Init::T5 { factor } = self.initialization() else {
            return model;
        };
        let of_queries = 1.0 / (self.head_dim() as f64).sqrt();
        for block in &mut model.encoder.blocks {
            scale_queries(block, of_queries);
        }
        for block in &mut model.decoder.blocks {
            scale_queries(block, of_queries);
        }
        match factor {
            1.0 => model,
            factor => map_params(model, &mut Scale { factor }),
        }
    }

    /// Builds a zero-initialized encoder–decoder to load weights into. Parameters are allocated lazily.
    pub fn blank_encoder_decoder<B: Backend>(&self, device: &Device<B>) -> EncoderDecoder<B> {
        self.initialized_encoder_decoder(None, device)
    }

    fn initialized_encoder_decoder<B: Backend>(
        &self,
        seed: Option<u64>,
        device: &Device<B>,
    ) -> EncoderDecoder<B> {
        let from = self.initializer(seed, device, B::largest_buffer(device));
        let decoder = self.stack();
        let encoder = self.source_stack().unwrap_or_else(|| decoder.clone());
        EncoderDecoder {
            embeddings: self.embeddings().init_from(&from),
            encoder: encoder.init_from(&from.within("encoder.")),
            decoder: decoder.init_from(&from.within("decoder.")),
            lm_head: self.lm_head().init_from(&from),
            config: self.clone(),
        }
    }
}

/// Multiplies the weights that compute a block's queries.
fn scale_queries<B: Backend>(block: &mut Block<B>, factor: f64) {
    let [queries, keys, values] = block.attention.qkv_widths();
    let weight = &mut block.attention.qkv.weight;
    *weight = weight.clone().mapped(|weight| {
        let rest = weight.clone().narrow(1, queries, keys + values);
        Tensor::cat(vec![weight.narrow(1, 0, queries) * factor, rest], 1)
    });
    if let Some(cross) = &mut block.cross {
        let weight = &mut cross.attention.q.weight;
        *weight = weight.clone().mapped(|weight| weight * factor);
    }
}

/// Multiplies every matrix.
struct Scale {
    factor: f64,
}

impl<B: Backend> ParamMapper<B> for Scale {
    fn map<const D: usize>(
        &mut self,
        _path: &str,
        _id: ParamId,
        value: Tensor<B, D>,
    ) -> Tensor<B, D> {
        match D {
            2 => changed(value, |value| value * self.factor),
            _ => value,
        }
    }
}

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

impl<B: Backend> EncoderDecoder<B> {
    /// The model's configuration.
    pub fn config(&self) -> &TransformerConfig {
        &self.config
    }

    /// Returns the model with its matrix products in another precision. The stored weights do not change.
    pub fn with_precision(mut self, precision: Precision) -> Self {
        self.encoder.set_precision(precision);
        self.decoder.set_precision(precision);
        self.lm_head.precision = precision;
        self
    }

    /// The device that holds the weights.
    pub fn device(&self) -> Device<B> {
        self.embeddings.tokens.device()
    }

    /// Runs the encoder over sources `[batch, source]`. `padding` is false at padding tokens, `[batch, source]`; no
    /// token attends to them. Ids must be below `vocab_size`; [`TransformerConfig::check_tokens`] checks input.
    pub fn encode(
        &self,
        source: Tensor<B, 2, Int>,
        padding: Option<Tensor<B, 2, Bool>>,
    ) -> EncodedSource<B> {
        let x = self.embeddings.forward(&source.into(), 0);
        let states = self.encoder.run(x, padded(padding.clone()), None);
        EncodedSource {
            memory: self.decoder.memory(states.clone(), padding),
            states,
        }
    }

    /// The decoder's final hidden states for target tokens `[batch, target]` that continue the cached ones.
    pub(crate) fn hidden(
        &self,
        target: Tensor<B, 2, Int>,
        source: &EncodedSource<B>,
        cache: Option<&mut KvCache<B>>,
    ) -> Tensor<B, 3> {
        let x = self.embeddings.forward(&target.into(), 0);
        self.decoder.run(x, source.context(), cache)
    }

    /// Computes the logits of every position, `[batch, target]` to `[batch, target, vocab_size]`. The first target
    /// token is the start token, as in [`EncoderDecoder::shifted_right`].
    pub fn forward(&self, target: Tensor<B, 2, Int>, source: &EncodedSource<B>) -> Tensor<B, 3> {
        let hidden = self.hidden(target, source, None);
        self.lm_head.forward(hidden, &self.embeddings.tokens)
    }

    /// An empty cache for [`EncoderDecoder::next_logits`], with room for `capacity` target tokens of each of `batch`
    /// sequences.
    pub fn cache(&self, batch: usize, capacity: usize) -> KvCache<B> {
        let stack = self.config.stack();
        stack.cache(batch, capacity, &self.device())
    }

    /// Computes the logits of every position of target tokens that continue the cached ones, and adds the tokens to the
    /// cache.
    pub fn forward_cached(
        &self,
        target: Tensor<B, 2, Int>,
        source: &EncodedSource<B>,
        cache: &mut KvCache<B>,
    ) -> Tensor<B, 3> {
        let hidden = self.hidden(target, source, Some(cache));
        self.lm_head.forward(hidden, &self.embeddings.tokens)
    }

    /// Logits of the last position only, `[batch, vocab_size]`; otherwise as [`EncoderDecoder::forward_cached`].
    pub fn next_logits(
        &self,
        target: Tensor<B, 2, Int>,
        source: &EncodedSource<B>,
        cache: &mut KvCache<B>,
    ) -> Tensor<B, 2> {
        let hidden = self.hidden(target, source, Some(cache));
        let [_, seq, _] = hidden.dims();
        let last = hidden.narrow(1, seq - 1, 1); // [batch, 1, d_model]
        let logits = self.lm_head.forward(last, &self.embeddings.tokens);
        logits.squeeze_dim(1)
    }

    /// The decoder's input for labels `[batch, target]`: the start token, then all labels but the last. Ignored labels,
    /// which are below 0, become padding tokens.
    pub fn shifted_right(&self, labels: Tensor<B, 2, Int>) -> Tensor<B, 2, Int> {
        let start = self.config.start_token().unwrap_or(0);
        let padding = self.config.padding_token();
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
    pub fn loss_sum(&self, labels: Tensor<B, 2, Int>, source: &EncodedSource<B>) -> Tensor<B, 1> {
        let hidden = self.hidden(self.shifted_right(labels.clone()), source, None);
        self.loss_sum_of(hidden, labels, HeadLossOptions::default())
    }

    /// [`EncoderDecoder::loss_sum`] of the decoder's hidden states before the head, `[batch, target, d_model]`, with the
    /// optional additional terms of training.
    pub fn loss_sum_of(
        &self,
        hidden: Tensor<B, 3>,
        labels: Tensor<B, 2, Int>,
        options: HeadLossOptions,
    ) -> Tensor<B, 1> {
        let tokens = &self.embeddings.tokens;
        self.lm_head.loss_sum(hidden, tokens, labels, options)
    }

    /// The attention weights of the encoder after the softmax, `[batch, heads, source, source]` per block.
    pub fn encoder_attention_weights(
        &self,
        source: Tensor<B, 2, Int>,
        padding: Option<Tensor<B, 2, Bool>>,
    ) -> Vec<Tensor<B, 4>> {
        let x = self.embeddings.forward(&source.into(), 0);
        self.encoder.run_attention_weights(x, padded(padding))
    }

    /// The weights of the decoder's self-attentions after the softmax, `[batch, heads, target, target]` per block. The
    /// first target token is the start token.
    pub fn decoder_attention_weights(
        &self,
        target: Tensor<B, 2, Int>,
        source: &EncodedSource<B>,
    ) -> Vec<Tensor<B, 4>> {
        let x = self.embeddings.forward(&target.into(), 0);
        self.decoder.run_attention_weights(x, source.context())
    }

    /// The weights of the decoder's cross-attentions after the softmax, `[batch, heads, target, source]` per block. The
    /// first target token is the start token.
    pub fn cross_attention_weights(
        &self,
        target: Tensor<B, 2, Int>,
        source: &EncodedSource<B>,
    ) -> Vec<Tensor<B, 4>> {
        let x = self.embeddings.forward(&target.into(), 0);
        self.decoder.run_cross_weights(x, source.context())
    }
}
