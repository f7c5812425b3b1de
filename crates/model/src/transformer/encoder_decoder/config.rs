//! An encoder–decoder in the words of T5.

use emberlm_kernels::Activation;
use serde::{Deserialize, Serialize};

use crate::config::base::common;
use crate::config::{
    Architecture, AttentionKind, DropoutSite, Family, FeedForward, Head, Init, ModelConfig,
    ModelKind, Norm, Position, RelativePositions,
};
use crate::error::ConfigError;
use crate::transformer::checked::TransformerConfig;

/// The settings of an encoder–decoder in the words of T5, which a `config.json` and tables of earlier versions have. They become a
/// [`ModelConfig`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EncoderDecoderSettings {
    /// Number of token ids; 0 for as many as the data needs.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Number of blocks in the encoder.
    pub encoder_layers: usize,
    /// Number of blocks in the decoder.
    pub decoder_layers: usize,
    /// Attention heads per block.
    pub heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// The relative positions of both stacks.
    pub relative_positions: RelativePositions,
    /// The feed-forward layer.
    pub feed_forward: FeedForward,
    /// The normalization.
    pub norm: Norm,
    /// The output projection.
    pub head: Head,
    /// Probability of dropping an element during training, at every site that T5 has.
    pub dropout: f64,
    /// Factor on the standard deviations of the initial weights.
    pub init_factor: f64,
    /// The token that begins every target.
    pub start_token: u32,
    /// The token that stands for ignored labels in the decoder's input.
    pub padding_token: u32,
}

impl EncoderDecoderSettings {
    /// The sizes of the preset `t5-nano`, without dropout; the vocabulary depends on the data.
    pub fn nano(vocab_size: usize) -> Self {
        Self {
            vocab_size,
            encoder_layers: 2,
            decoder_layers: 2,
            feed_forward: FeedForward::gated(Activation::GeluTanh).with_width(256),
            ..Self::new(128, 4)
        }
    }

    /// T5's components with `heads` heads and one block per stack of width `d_model`, without dropout.
    pub fn new(d_model: usize, heads: usize) -> Self {
        Self {
            vocab_size: 32_128,
            d_model,
            encoder_layers: 1,
            decoder_layers: 1,
            heads,
            head_dim: d_model / heads.max(1),
            relative_positions: RelativePositions {
                buckets: 32,
                max_distance: 128,
            },
            feed_forward: FeedForward::dense(Activation::Relu),
            norm: Norm::Rms { epsilon: 1e-6 },
            head: Head {
                tied: true,
                bias: false,
                scaled: true,
                scale: None,
                soft_cap: None,
            },
            dropout: 0.0,
            init_factor: 1.0,
            start_token: 0,
            padding_token: 0,
        }
    }
}

/// The names of [`EncoderDecoderSettings`] for fields of [`ModelConfig`].
const NAMES: [(&str, &str); 4] = [
    ("n_layers", "decoder_layers"),
    ("position.buckets", "relative_positions.buckets"),
    ("position.max_distance", "relative_positions.max_distance"),
    ("init.factor", "init_factor"),
];

/// The tokens of the longest context that is assumed where relative positions set no limit.
const NOMINAL: usize = 512;

impl TryFrom<EncoderDecoderSettings> for TransformerConfig {
    type Error = ConfigError;

    fn try_from(settings: EncoderDecoderSettings) -> Result<Self, ConfigError> {
        Self::try_from(ModelConfig::from(settings)).map_err(|error| error.renamed(&NAMES))
    }
}

impl From<EncoderDecoderSettings> for ModelConfig {
    fn from(settings: EncoderDecoderSettings) -> Self {
        Self {
            vocab_size: Some(settings.vocab_size).filter(|&size| size > 0),
            seq_len: NOMINAL,
            d_model: settings.d_model,
            n_layers: settings.decoder_layers,
            heads: settings.heads,
            head_dim: Some(settings.head_dim),
            dropout: settings.dropout,
            dropout_sites: vec![
                DropoutSite::Embedding,
                DropoutSite::Attention,
                DropoutSite::Hidden,
                DropoutSite::Residual,
            ],
            attention: AttentionKind::scaled(Some(1.0)),
            norm: settings.norm,
            position: Position::Relative(settings.relative_positions),
            feed_forward: settings.feed_forward,
            head: settings.head,
            init: Init::T5 {
                factor: settings.init_factor,
            },
            architecture: Architecture::EncoderDecoder {
                encoder_layers: settings.encoder_layers,
                start_token: settings.start_token,
                padding_token: settings.padding_token,
            },
            ..common(Family::of_kind(ModelKind::EncoderDecoder))
        }
    }
}

impl EncoderDecoderSettings {
    /// The settings of an encoder–decoder with its defaults filled in; `None` for another model.
    pub fn of(config: &TransformerConfig) -> Option<Self> {
        let raw = config.raw();
        let (
            Architecture::EncoderDecoder {
                encoder_layers,
                start_token,
                padding_token,
            },
            Position::Relative(relative_positions),
            Init::T5 {
                factor: init_factor,
            },
        ) = (raw.architecture, raw.position, raw.init)
        else {
            return None;
        };
        Some(Self {
            vocab_size: config.vocab_size(),
            d_model: raw.d_model,
            encoder_layers,
            decoder_layers: raw.n_layers,
            heads: raw.heads,
            head_dim: config.head_dim(),
            relative_positions,
            feed_forward: raw.feed_forward,
            norm: raw.norm,
            head: raw.head,
            dropout: raw.dropout,
            init_factor,
            start_token,
            padding_token,
        })
    }
}
