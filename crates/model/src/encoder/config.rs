//! Configuration of an encoder: as written, and checked.

use documented::DocumentedFields;
use emberlm_kernels::{Activation, Reach};
use serde::{Deserialize, Serialize};

use crate::attention::AttentionConfig;
use crate::attention::{Mechanism, default_scale};
use crate::block::BlockConfig;
use crate::config::{Biases, FeedForward, Init, Norm, Wiring};
use crate::count::encoder_counts;
use crate::embeddings::EmbeddingsConfig;
use crate::error::{ConfigError, InputError};
use crate::feed_forward::FeedForwardConfig;
use crate::position::AddedPositionsConfig;
use crate::stack::StackConfig;

/// Larger than any published model. Keeps products of sizes far from overflow.
const LARGEST_SIZE: usize = 1 << 24;

/// An encoder's configuration as written, not yet checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(deny_unknown_fields)]
pub struct EncoderSettings {
    /// Number of token ids; in a run's configuration, 0 for as many as the tokenizer and the objective need.
    pub vocab_size: usize,
    /// Rows of the table of learned positions.
    pub positions: usize,
    /// Row of a text's first token in that table (RoBERTa: 2).
    pub first_position: usize,
    /// Number of segment vectors (BERT's token types); 0 for none.
    pub segments: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Number of blocks.
    pub n_layers: usize,
    /// Attention heads per block.
    pub heads: usize,
    /// The feed-forward layer.
    pub feed_forward: FeedForward,
    /// The normalization.
    pub norm: Norm,
    /// The order of sublayers and norms in a block.
    pub wiring: Wiring,
    /// The linear layers that have a bias.
    pub bias: Biases,
    /// Probability of dropping an element of the embeddings and of a sublayer's output during training.
    pub dropout: f64,
    /// Probability of dropping an attention weight during training.
    pub attention_dropout: f64,
    /// Weight initialization.
    pub init: Init,
    /// The head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<EncoderHeadConfig>,
}

/// The head of an encoder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum EncoderHeadConfig {
    /// `tanh(dense(first token's state))`.
    Pooler,
    /// Token logits `norm(f(dense(x))) · Eᵀ + b`, with the token embedding `E`.
    MaskedLm {
        /// The activation `f`.
        activation: Activation,
    },
    /// Label logits `out(f(dense(first token's state)))`.
    Sequence {
        /// Names of the labels.
        labels: Vec<String>,
        /// The activation `f`.
        activation: PooledActivation,
    },
    /// Label logits `out(x)` for every token.
    Token {
        /// Names of the labels.
        labels: Vec<String>,
    },
}

/// The activation between the two layers of a sequence classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PooledActivation {
    /// `tanh(x)` (BERT and RoBERTa).
    Tanh,
    /// `max(x, 0)` (DistilBERT).
    Relu,
}

impl EncoderSettings {
    /// The sizes of the preset `bert-nano`, without a head or dropout; the vocabulary depends on the data.
    pub fn nano(vocab_size: usize) -> Self {
        Self {
            vocab_size,
            positions: 128,
            n_layers: 4,
            feed_forward: FeedForward::dense(Activation::Gelu).with_width(512),
            ..Self::new(128, 4)
        }
    }

    /// BERT's components with `heads` heads and one block of width `d_model`, without a head or dropout.
    pub fn new(d_model: usize, heads: usize) -> Self {
        Self {
            vocab_size: 30_522,
            positions: 512,
            first_position: 0,
            segments: 2,
            d_model,
            n_layers: 1,
            heads,
            feed_forward: FeedForward::dense(Activation::Gelu),
            norm: Norm::Layer {
                bias: true,
                epsilon: 1e-12,
            },
            wiring: Wiring::PostNorm,
            bias: Biases::all(true),
            dropout: 0.0,
            attention_dropout: 0.0,
            init: Init::Normal {
                std: 0.02,
                scale_residual: false,
            },
            head: None,
        }
    }
}

/// A checked configuration: every rule holds. [`EncoderConfig::try_from`] builds one.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderConfig {
    settings: EncoderSettings,
    head_dim: usize,
}

impl TryFrom<EncoderSettings> for EncoderConfig {
    type Error = ConfigError;

    fn try_from(mut settings: EncoderSettings) -> Result<Self, ConfigError> {
        for (field, value) in [
            ("vocab_size", settings.vocab_size),
            ("positions", settings.positions),
            ("d_model", settings.d_model),
            ("n_layers", settings.n_layers),
            ("heads", settings.heads),
        ] {
            if !(1..=LARGEST_SIZE).contains(&value) {
                let rule = format!("must be between 1 and {LARGEST_SIZE}");
                return Err(ConfigError::new(field, value, rule));
            }
        }
        if settings.segments > LARGEST_SIZE {
            let rule = format!("must be at most {LARGEST_SIZE}");
            return Err(ConfigError::new("segments", settings.segments, rule));
        }
        if settings.first_position >= settings.positions {
            let rule = format!("must be less than positions = {}", settings.positions);
            return Err(ConfigError::new(
                "first_position",
                settings.first_position,
                rule,
            ));
        }
        let (d_model, heads) = (settings.d_model, settings.heads);
        if !d_model.is_multiple_of(heads) {
            let rule = format!("must divide d_model = {d_model}");
            return Err(ConfigError::new("heads", heads, rule));
        }
        let width = settings.feed_forward.width_for(d_model);
        if !(1..=LARGEST_SIZE).contains(&width) {
            let rule = format!("must be between 1 and {LARGEST_SIZE}");
            return Err(ConfigError::new("feed_forward.width", width, rule));
        }
        settings.feed_forward.width = Some(width);
        settings.feed_forward.expansion = None;
        let epsilon = settings.norm.epsilon();
        if !(epsilon.is_finite() && epsilon > 0.0) {
            return Err(ConfigError::new("norm.epsilon", epsilon, "must be above 0"));
        }
        for (field, probability) in [
            ("dropout", settings.dropout),
            ("attention_dropout", settings.attention_dropout),
        ] {
            if !(0.0..1.0).contains(&probability) {
                return Err(ConfigError::new(field, probability, "must be in 0..1"));
            }
        }
        if let Some(labels) = settings.head.as_ref().and_then(EncoderHeadConfig::labels)
            && !(1..=LARGEST_SIZE).contains(&labels.len())
        {
            return Err(ConfigError::new(
                "head.labels",
                labels.len(),
                "must name at least one label",
            ));
        }
        Ok(Self {
            head_dim: d_model / heads,
            settings,
        })
    }
}

impl EncoderHeadConfig {
    /// The names of a classifier's labels; `None` for other heads.
    pub fn labels(&self) -> Option<&[String]> {
        match self {
            Self::Sequence { labels, .. } | Self::Token { labels } => Some(labels),
            Self::Pooler | Self::MaskedLm { .. } => None,
        }
    }
}

impl EncoderConfig {
    /// The configuration as written, with its defaults filled in.
    pub fn settings(&self) -> &EncoderSettings {
        &self.settings
    }

    /// Number of token ids.
    pub fn vocab_size(&self) -> usize {
        self.settings.vocab_size
    }

    /// The longest text, in tokens.
    pub fn seq_len(&self) -> usize {
        self.settings.positions - self.settings.first_position
    }

    /// Width of the hidden states.
    pub fn d_model(&self) -> usize {
        self.settings.d_model
    }

    /// Returns an error for tokens that the encoder cannot process.
    ///
    /// # Errors
    /// There are none or too many, or one is outside of the vocabulary.
    pub fn check_tokens(&self, ids: &[u32]) -> Result<(), InputError> {
        let (vocab_size, seq_len) = (self.vocab_size(), self.seq_len());
        if ids.is_empty() {
            return Err(InputError::Empty);
        }
        if ids.len() > seq_len {
            return Err(InputError::TooLong {
                tokens: ids.len(),
                seq_len,
            });
        }
        match ids.iter().position(|&id| id as usize >= vocab_size) {
            Some(position) => Err(InputError::UnknownToken {
                id: ids[position],
                position,
                vocab_size,
            }),
            None => Ok(()),
        }
    }

    /// The embeddings.
    pub fn embeddings(&self) -> EmbeddingsConfig {
        let settings = &self.settings;
        EmbeddingsConfig {
            positions: AddedPositionsConfig::Learned {
                seq_len: settings.positions,
            },
            segments: settings.segments,
            norm: Some(settings.norm),
            dropout: settings.dropout,
            ..EmbeddingsConfig::new(settings.vocab_size, settings.d_model)
        }
    }

    /// The blocks. Post-norm blocks end with a norm, so no other follows the last.
    pub fn stack(&self) -> StackConfig {
        let settings = &self.settings;
        let block = BlockConfig {
            norm: settings.norm,
            wiring: settings.wiring,
            dropout: settings.dropout,
            ..BlockConfig::new(self.attention(), self.feed_forward())
        };
        StackConfig {
            final_norm: settings.wiring != Wiring::PostNorm,
            ..StackConfig::new(settings.n_layers, block)
        }
    }

    fn feed_forward(&self) -> FeedForwardConfig {
        let settings = &self.settings;
        let width = settings.feed_forward.width_for(settings.d_model);
        FeedForwardConfig {
            kind: settings.feed_forward.kind,
            activation: settings.feed_forward.activation,
            bias: settings.bias.feed_forward,
            ..FeedForwardConfig::new(settings.d_model, width)
        }
    }

    pub(crate) fn attention(&self) -> AttentionConfig {
        let settings = &self.settings;
        AttentionConfig {
            qkv_bias: settings.bias.qkv,
            out_bias: settings.bias.attention_out,
            mechanism: Mechanism::Softmax {
                reach: Reach::Full,
                scale: default_scale(self.head_dim),
                soft_cap: None,
                dropout: settings.attention_dropout,
            },
            ..AttentionConfig::new(settings.d_model, settings.heads)
        }
    }

    /// Number of parameters; [`crate::count::encoder_table`] has those of each component.
    pub fn parameters(&self) -> u128 {
        let counts = encoder_counts(self);
        counts.iter().map(|count| count.total()).sum()
    }

    pub(crate) fn head_parameters(&self) -> u128 {
        let width = self.settings.d_model as u128;
        let dense = width * (width + 1);
        let labels = |labels: &[String]| labels.len() as u128 * (width + 1);
        match &self.settings.head {
            None => 0,
            Some(EncoderHeadConfig::Pooler) => dense,
            Some(EncoderHeadConfig::MaskedLm { .. }) => {
                let norm = crate::norm::NormConfig::new(self.settings.norm, self.settings.d_model);
                dense + norm.parameters() + self.settings.vocab_size as u128
            }
            Some(EncoderHeadConfig::Sequence { labels: names, .. }) => dense + labels(names),
            Some(EncoderHeadConfig::Token { labels: names }) => labels(names),
        }
    }

    /// The normalization.
    pub(crate) fn norm(&self) -> Norm {
        self.settings.norm
    }
}
