//! The bidirectional transformer: token ids in, hidden states out.
//!
//! ```text
//! tokens ─► embedding + positions + segments ─► norm ─► block × n_layers ─► [norm] ─► states ─► [head]
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `config` | [`EncoderSettings`]: a configuration as written |
//! | `head_config`, `head` | masked language model, classifiers, pooler |
//! | `pooling` | one vector per text |
//! | `texts` | one pass over texts of unequal length, without padding |

mod config;
mod head;
mod head_config;
mod pooling;
mod texts;

pub use crate::config::{EncoderHeadConfig, PooledActivation, Pooling, ProblemType, TokenLayer};
pub use config::{EncoderSettings, LocalWindow};
pub use head::{EncoderHead, MaskedLmHead, SequenceClassifier, TokenClassifier};
pub use texts::{TextStates, TextTokens};

use burn::module::Module;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Bool, Device, Int, Tensor};

use emberlm_kernels::{AttentionMask, Backend, HeadLossOptions, Precision};

use crate::nn::context::StackContext;
use crate::nn::embeddings::Embeddings;
use crate::nn::stack::Stack;
use crate::transformer::checked::TransformerConfig;

/// An encoder with its weights: embeddings, a stack whose tokens attend in both directions, and an optional head.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use emberlm_model::TransformerConfig;
/// use emberlm_model::encoder::{EncoderInput, EncoderSettings};
///
/// let settings = EncoderSettings { vocab_size: 100, n_layers: 2, ..EncoderSettings::new(64, 4) };
/// let device = Default::default();
/// let encoder = TransformerConfig::try_from(settings)?.init_encoder::<Flex>(1, &device);
/// let ids = Tensor::from_data([[1, 2, 3], [4, 5, 0]], &device);
/// let padding = Tensor::from_data([[true, true, true], [true, true, false]], &device);
/// let states = encoder.forward(EncoderInput { padding: Some(padding), ..ids.into() });
/// assert_eq!(states.dims(), [2, 3, 64]);
/// # Ok::<(), emberlm_model::ConfigError>(())
/// ```
#[derive(Module, Debug)]
pub struct Encoder<B: BurnBackend> {
    /// Maps tokens to vectors.
    pub embeddings: Embeddings<B>,
    /// The blocks.
    pub stack: Stack<B>,
    /// Maps states to token or class logits.
    pub head: Option<EncoderHead<B>>,
    #[module(skip)]
    config: TransformerConfig,
}

/// A batch of texts, padded to one length.
#[derive(Clone, Debug)]
pub struct EncoderInput<B: BurnBackend> {
    /// Token ids, `[batch, seq]`.
    pub ids: Tensor<B, 2, Int>,
    /// The segment of each token, `[batch, seq]`; by default 0.
    pub segments: Option<Tensor<B, 2, Int>>,
    /// False at padding tokens, `[batch, seq]`; no token attends to them. Padding follows the text.
    pub padding: Option<Tensor<B, 2, Bool>>,
}

impl<B: BurnBackend> From<Tensor<B, 2, Int>> for EncoderInput<B> {
    fn from(ids: Tensor<B, 2, Int>) -> Self {
        Self {
            ids,
            segments: None,
            padding: None,
        }
    }
}

impl TransformerConfig {
    /// Builds an encoder with its initial weights, which depend only on the configuration and `seed`.
    pub fn init_encoder<B: Backend>(&self, seed: u64, device: &Device<B>) -> Encoder<B> {
        self.initialized_encoder(Some(seed), device)
    }

    /// Builds a zero-initialized encoder to load weights into. Parameters are allocated lazily.
    pub fn blank_encoder<B: Backend>(&self, device: &Device<B>) -> Encoder<B> {
        self.initialized_encoder(None, device)
    }

    fn initialized_encoder<B: Backend>(&self, seed: Option<u64>, device: &Device<B>) -> Encoder<B> {
        let from = self.initializer(seed, device, B::largest_buffer(device));
        Encoder {
            embeddings: self.embeddings().init_from(&from),
            stack: self.stack().init_from(&from),
            head: self
                .encoder_head()
                .map(|head| EncoderHead::init_from(head, self, &from)),
            config: self.clone(),
        }
    }
}

impl<B: Backend> Encoder<B> {
    /// The encoder's configuration.
    pub fn config(&self) -> &TransformerConfig {
        &self.config
    }

    /// Returns the model with its matrix products in another precision. The stored weights do not change.
    pub fn with_precision(mut self, precision: Precision) -> Self {
        self.stack.set_precision(precision);
        if let Some(head) = &mut self.head {
            head.set_precision(precision);
        }
        self
    }

    /// The device that holds the weights.
    pub fn device(&self) -> Device<B> {
        self.embeddings.tokens.device()
    }

    /// Computes the final hidden states, `[batch, seq]` to `[batch, seq, d_model]`. States at padding tokens have no
    /// meaning.
    ///
    /// Ids must be below `vocab_size`, segments below `segments`, and texts at most [`TransformerConfig::seq_len`] long;
    /// [`TransformerConfig::check_tokens`] checks input.
    pub fn forward(&self, input: impl Into<EncoderInput<B>>) -> Tensor<B, 3> {
        let (x, context) = self.embedded_with_context(input);
        self.stack.run(x, context, None)
    }

    /// The attention weights after the softmax, one tensor `[batch, heads, seq, seq]` per block.
    pub fn attention_weights(&self, input: impl Into<EncoderInput<B>>) -> Vec<Tensor<B, 4>> {
        let (x, context) = self.embedded_with_context(input);
        self.stack.run_attention_weights(x, context)
    }

    /// Computes the logits of every token, `[batch, seq, d_model]` to `[batch, seq, outputs]`: of the vocabulary for a
    /// masked language model, of the labels for a token classifier. `None` for other heads.
    pub fn token_logits(&self, states: Tensor<B, 3>) -> Option<Tensor<B, 3>> {
        let head = self.head.as_ref()?;
        head.token_logits(states, &self.embeddings.tokens)
    }

    /// The pooling of the states that [`Encoder::class_logits`] maps to labels; that of the first token without a
    /// sequence classifier.
    pub fn class_pooling(&self) -> Pooling {
        match &self.head {
            Some(EncoderHead::Sequence(classifier)) => classifier.pooling(),
            _ => Pooling::First,
        }
    }

    /// Pools the states of a padded batch for [`Encoder::class_logits`], `[batch, seq, d_model]` to `[batch, d_model]`.
    /// The padding mask `[batch, seq]` is false at padding tokens.
    pub fn class_states(
        &self,
        states: Tensor<B, 3>,
        padding: Option<Tensor<B, 2, Bool>>,
    ) -> Tensor<B, 2> {
        self.class_pooling().forward_padded(states, padding)
    }

    /// Computes the logits of a text's labels from its pooled states, `[texts, d_model]` to `[texts, labels]`.
    /// `None` without a sequence classifier.
    pub fn class_logits(&self, pooled: Tensor<B, 2>) -> Option<Tensor<B, 2>> {
        match &self.head {
            Some(EncoderHead::Sequence(classifier)) => Some(classifier.forward(pooled)),
            _ => None,
        }
    }

    /// The cross-entropy in nats of the head's outputs, summed over the targets that are at least 0, plus the additional
    /// terms of `options`: `[1]`. Targets are `[batch, seq]` for a head of tokens and `[batch, 1]` for a head of texts,
    /// which reads the pooled states. The padding mask `[batch, seq]` is false at padding tokens. `None` without such a head.
    pub fn head_loss_sum(
        &self,
        states: Tensor<B, 3>,
        padding: Option<Tensor<B, 2, Bool>>,
        targets: Tensor<B, 2, Int>,
        options: HeadLossOptions,
    ) -> Option<Tensor<B, 1>> {
        let head = self.head.as_ref()?;
        head.loss_sum(states, padding, &self.embeddings.tokens, targets, options)
    }

    /// The embedded tokens, `[batch, seq, d_model]`, and the context of the stack.
    pub(crate) fn embedded_with_context(
        &self,
        input: impl Into<EncoderInput<B>>,
    ) -> (Tensor<B, 3>, StackContext<'static, B>) {
        let EncoderInput {
            ids,
            segments,
            padding,
        } = input.into();
        let offset = self.config.first_position();
        let embedded = self.embeddings.forward_with_segments(ids, segments, offset);
        let mask = AttentionMask {
            padding,
            ..AttentionMask::default()
        };
        (embedded, mask.into())
    }
}
