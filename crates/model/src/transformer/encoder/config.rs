//! Configuration of an encoder: as written, and checked.

mod rules;

use documented::DocumentedFields;
use emberlm_kernels::{Activation, Reach};
use serde::{Deserialize, Serialize};

use super::head_config::EncoderHeadConfig;
use crate::config::limits::{LARGEST_SIZE, MOST_LAYERS, positive, within};
use crate::config::{
    Biases, FeedForward, FullLayers, Init, LayerPositions, Norm, Position, Wiring,
};
use crate::error::{ConfigError, InputError};
use crate::nn::attention::{AttentionConfig, Mechanism, default_scale};
use crate::nn::block::BlockConfig;
use crate::nn::embeddings::EmbeddingsConfig;
use crate::nn::feed_forward::FeedForwardConfig;
use crate::nn::position::{AddedPositionsConfig, RotaryConfig};
use crate::nn::stack::{LayerRotaryConfig, StackConfig};
use crate::transformer::count::encoder_counts;

/// An encoder's configuration as written, not yet checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(deny_unknown_fields)]
pub struct EncoderSettings {
    /// Number of token ids; in a run's configuration, 0 for as many as the tokenizer and the objective need.
    pub vocab_size: usize,
    /// Rows of the table of learned positions, or the longest text with rotary ones, in tokens.
    pub positions: usize,
    /// Row of a text's first token in that table (RoBERTa: 2).
    pub first_position: usize,
    /// The positions: kind "learned" (the default) or "rotary", as in `model`.
    #[serde(default = "learned", skip_serializing_if = "is_learned")]
    pub position: Position,
    /// Rotary positions of some blocks that differ from those of `position`: kind "rotary" { layers, base, scaling }.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_positions: Option<LayerPositions>,
    /// Attention to only the tokens at most distance away: { distance, full_layers }; full_layers is a list of blocks or { every = 3 }. By default each token attends to all tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<LocalWindow>,
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
    /// Normalize the input of the first block's attention, which is the normalized embeddings; by default true.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub first_norm: bool,
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

/// A window in both directions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalWindow {
    /// The largest distance between a token and those that it attends to.
    pub distance: usize,
    /// Blocks without the window.
    #[serde(default)]
    pub full_layers: FullLayers,
}

const fn learned() -> Position {
    Position::Learned
}

fn is_learned(position: &Position) -> bool {
    *position == Position::Learned
}

pub(super) const fn yes() -> bool {
    true
}

pub(super) const fn is_yes(flag: &bool) -> bool {
    *flag
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
            position: Position::Learned,
            layer_positions: None,
            window: None,
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
            first_norm: true,
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
    settings: Box<EncoderSettings>,
    head_dim: usize,
}

impl TryFrom<EncoderSettings> for EncoderConfig {
    type Error = ConfigError;

    fn try_from(mut settings: EncoderSettings) -> Result<Self, ConfigError> {
        for (field, value) in [
            ("vocab_size", settings.vocab_size),
            ("positions", settings.positions),
            ("d_model", settings.d_model),
            ("heads", settings.heads),
        ] {
            within(field, value, 1..=LARGEST_SIZE)?;
        }
        within("n_layers", settings.n_layers, 1..=MOST_LAYERS)?;
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
        within("feed_forward.width", width, 1..=LARGEST_SIZE)?;
        settings.feed_forward.width = Some(width);
        settings.feed_forward.expansion = None;
        let epsilon = settings.norm.epsilon();
        positive("norm.epsilon", epsilon)?;
        if let Init::Normal { std, .. } = settings.init {
            positive("init.std", std)?;
        }
        for (field, probability) in [
            ("dropout", settings.dropout),
            ("attention_dropout", settings.attention_dropout),
        ] {
            if !(0.0..1.0).contains(&probability) {
                return Err(ConfigError::new(field, probability, "must be in 0..1"));
            }
        }
        if let Some(head) = &settings.head {
            head.check()?;
        }
        let head_dim = d_model / heads;
        rules::fill_positions(&mut settings, head_dim);
        rules::check_positions(&settings, head_dim)?;
        Ok(Self {
            head_dim,
            settings: Box::new(settings),
        })
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
            positions: match settings.position {
                Position::Learned => AddedPositionsConfig::Learned {
                    seq_len: settings.positions,
                },
                _ => AddedPositionsConfig::None,
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
            full_layers: settings.window.as_ref().map_or_else(Vec::new, |window| {
                window.full_layers.layers(settings.n_layers)
            }),
            rotary: self.rotary(),
            layer_rotary: self.layer_rotary(),
            first_norm: settings.first_norm,
            final_norm: settings.wiring != Wiring::PostNorm,
            ..StackConfig::new(settings.n_layers, block)
        }
    }

    /// The rotation of queries and keys, if any.
    fn rotary(&self) -> Option<RotaryConfig> {
        match &self.settings.position {
            Position::Rotary {
                dims,
                base,
                layout,
                scaling,
            } => Some(RotaryConfig {
                seq_len: self.settings.positions,
                dims: dims.unwrap_or(self.head_dim),
                base: *base,
                layout: *layout,
                scaling: scaling.clone(),
            }),
            _ => None,
        }
    }

    /// The rotation of blocks with other positions, if any.
    fn layer_rotary(&self) -> Option<LayerRotaryConfig> {
        let positions = self.settings.layer_positions.as_ref()?;
        let layers = self.settings.n_layers;
        Some(LayerRotaryConfig::of(positions, layers, self.rotary()))
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
                reach: settings
                    .window
                    .as_ref()
                    .map_or(Reach::Full, |window| Reach::Local {
                        distance: window.distance,
                    }),
                scale: default_scale(self.head_dim),
                soft_cap: None,
                dropout: settings.attention_dropout,
            },
            ..AttentionConfig::new(settings.d_model, settings.heads)
        }
    }

    /// Number of parameters; [`crate::transformer::count::encoder_table`] has those of each component.
    pub fn parameters(&self) -> u128 {
        let counts = encoder_counts(self);
        counts.iter().map(|count| count.total()).sum()
    }

    pub(crate) fn head_parameters(&self) -> u128 {
        let head = self.settings.head.as_ref();
        head.map_or(0, |head| head.parameters(self))
    }

    /// The normalization.
    pub(crate) fn norm(&self) -> Norm {
        self.settings.norm
    }
}
