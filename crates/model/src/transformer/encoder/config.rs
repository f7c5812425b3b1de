//! An encoder in the words of published ones.

use emberlm_kernels::Activation;
use serde::{Deserialize, Serialize};

use crate::config::base::common;
use crate::config::choices::{is_yes, yes};
use crate::config::limits::{LARGEST_SIZE, within};
use crate::config::{
    Architecture, AttentionKind, Biases, DropoutSite, EncoderHeadConfig, Family, FeedForward,
    FullLayers, Head, Init, LayerPositions, ModelConfig, ModelKind, Norm, Position, Window, Wiring,
};
use crate::error::ConfigError;
use crate::transformer::checked::TransformerConfig;

/// The settings of an encoder in the words of published ones, which a `config.json` and tables of earlier versions have. They
/// become a [`ModelConfig`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EncoderSettings {
    /// Number of token ids; 0 for as many as the data needs.
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

/// The names of [`EncoderSettings`] for fields of [`ModelConfig`].
const NAMES: [(&str, &str); 3] = [
    ("seq_len", "positions"),
    ("attention.window.tokens", "window.distance"),
    ("attention.window.full_layers", "window.full_layers"),
];

impl TryFrom<EncoderSettings> for TransformerConfig {
    type Error = ConfigError;

    fn try_from(settings: EncoderSettings) -> Result<Self, ConfigError> {
        within("positions", settings.positions, 1..=LARGEST_SIZE)?;
        let (first, positions) = (settings.first_position, settings.positions);
        if first >= positions {
            let rule = format!("must be less than positions = {positions}");
            return Err(ConfigError::new("first_position", first, rule));
        }
        Self::try_from(ModelConfig::from(settings)).map_err(|error| error.renamed(&NAMES))
    }
}

impl From<EncoderSettings> for ModelConfig {
    fn from(settings: EncoderSettings) -> Self {
        let window = settings.window.map(|window| Window {
            tokens: window.distance,
            global_tokens: 0,
            full_layers: window.full_layers,
        });
        Self {
            vocab_size: Some(settings.vocab_size).filter(|&size| size > 0),
            seq_len: settings.positions.saturating_sub(settings.first_position),
            d_model: settings.d_model,
            n_layers: settings.n_layers,
            heads: settings.heads,
            dropout: settings.dropout,
            dropout_sites: vec![DropoutSite::Embedding, DropoutSite::Residual],
            norm_embedding: true,
            bias: settings.bias,
            attention: AttentionKind::Softmax {
                window,
                scale: None,
                soft_cap: None,
                sinks: false,
            },
            norm: settings.norm,
            position: settings.position,
            layer_positions: settings.layer_positions,
            feed_forward: settings.feed_forward,
            wiring: settings.wiring,
            // The logits of masked tokens are made with the tokens' table.
            head: Head {
                tied: true,
                bias: false,
                scaled: false,
                scale: None,
                soft_cap: None,
            },
            init: settings.init,
            architecture: Architecture::Encoder {
                segments: settings.segments,
                first_position: settings.first_position,
                first_norm: settings.first_norm,
                attention_dropout: settings.attention_dropout,
                head: settings.head,
            },
            ..common(Family::of_kind(ModelKind::Encoder))
        }
    }
}

impl EncoderSettings {
    /// The settings of an encoder with its defaults filled in; `None` for another model.
    pub fn of(config: &TransformerConfig) -> Option<Self> {
        let raw = config.raw();
        let Architecture::Encoder {
            segments,
            first_position,
            first_norm,
            attention_dropout,
            head,
        } = raw.architecture
        else {
            return None;
        };
        let window = config.window().map(|window| LocalWindow {
            distance: window.tokens,
            full_layers: window.full_layers.clone(),
        });
        Some(Self {
            vocab_size: config.vocab_size(),
            positions: raw.seq_len + first_position,
            first_position,
            position: raw.position,
            layer_positions: raw.layer_positions,
            window,
            segments,
            d_model: raw.d_model,
            n_layers: raw.n_layers,
            heads: raw.heads,
            feed_forward: raw.feed_forward,
            norm: raw.norm,
            wiring: raw.wiring,
            first_norm,
            bias: raw.bias,
            dropout: raw.dropout,
            attention_dropout,
            init: raw.init,
            head,
        })
    }
}
