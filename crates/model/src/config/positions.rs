//! Scaling of rotary frequencies, and blocks with other positions.

use serde::{Deserialize, Serialize};

use super::{FullLayers, choices};

/// Scaling of the rotary frequencies for longer contexts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum RotaryScaling {
    /// Unchanged frequencies.
    #[default]
    None,
    /// Divides all frequencies by a factor (Chen et al. 2023, "position interpolation").
    Linear {
        /// The divisor; by default 2.
        #[serde(default = "choices::twice")]
        factor: f64,
    },
    /// LLaMA 3.1's scaling: lengthens long wavelengths, keeps short ones and interpolates smoothly in between.
    Llama3 {
        /// The divisor of the lowest frequencies; by default 8.
        #[serde(default = "choices::eight")]
        factor: f64,
        /// Frequencies with wavelengths above `original_seq_len / low_frequency_factor` are divided by the full factor; by
        /// default 1.
        #[serde(default = "choices::one")]
        low_frequency_factor: f64,
        /// Frequencies with wavelengths below `original_seq_len / high_frequency_factor` stay unchanged; by default 4.
        #[serde(default = "choices::four")]
        high_frequency_factor: f64,
        /// Context length, in tokens, that the model was originally trained with; by default the model's `seq_len`.
        original_seq_len: usize,
    },
    /// NTK-aware scaling for a context longer than the original one: multiplies the base by
    /// `(factor · seq_len / original_seq_len - (factor - 1))^(dims / (dims - 2))`. Shorter contexts leave the frequencies
    /// unchanged.
    Dynamic {
        /// The scaling factor; by default 2.
        #[serde(default = "choices::twice")]
        factor: f64,
        /// Context length, in tokens, that the model was originally trained with; by default the model's `seq_len`.
        original_seq_len: usize,
    },
    /// YaRN (Peng et al. 2023): divides the frequencies of pairs that rotate rarely within the original context, keeps
    /// those of pairs that rotate often, interpolates linearly in between, and multiplies cosines and sines by a factor.
    Yarn {
        /// The divisor of the lowest frequencies; by default 2.
        #[serde(default = "choices::twice")]
        factor: f64,
        /// Pairs with more full rotations than this keep their frequency.
        #[serde(default = "default_beta_fast")]
        beta_fast: f64,
        /// The frequencies of pairs with fewer full rotations than this are divided by the full factor.
        #[serde(default = "default_beta_slow")]
        beta_slow: f64,
        /// Factor on cosines and sines; by default `0.1 · ln(factor) + 1`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attention_factor: Option<f64>,
        /// True if the interpolation begins and ends at whole pairs.
        #[serde(default = "default_truncate")]
        truncate: bool,
        /// Context length, in tokens, that the model was originally trained with; by default the model's `seq_len`.
        original_seq_len: usize,
    },
    /// LongRoPE (Ding et al. 2024, [2402.13753](https://arxiv.org/abs/2402.13753)): divides each pair's frequency
    /// by its own factor and multiplies cosines and sines by one factor. The divisors depend on the model's `seq_len`, not
    /// on the length of a text, so a text's states do not change while it grows.
    #[serde(rename = "longrope")]
    LongRope {
        /// The divisors if `seq_len` is at most `original_seq_len`, one per pair; by default 1.
        short_factor: Vec<f64>,
        /// The divisors of a longer `seq_len`, one per pair; by default 1.
        long_factor: Vec<f64>,
        /// Factor on cosines and sines; by default `√(1 + ln(seq_len / original_seq_len) / ln(original_seq_len))`, or 1
        /// if `seq_len` is at most `original_seq_len`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attention_factor: Option<f64>,
        /// Context length, in tokens, that the model was originally trained with; by default the model's `seq_len`.
        original_seq_len: usize,
    },
}

const fn default_beta_fast() -> f64 {
    32.0
}

const fn default_beta_slow() -> f64 {
    1.0
}

const fn default_truncate() -> bool {
    true
}

/// Blocks whose positions differ from the rotary positions of the other blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum LayerPositions {
    /// These blocks do not rotate queries and keys (SmolLM3).
    None {
        /// The blocks; by default every fourth one.
        #[serde(default = "choices::every_fourth")]
        layers: FullLayers,
    },
    /// These blocks rotate the same elements by other angles (Gemma 3, OLMo 3).
    Rotary {
        /// The blocks; by default every fourth one.
        #[serde(default = "choices::every_fourth")]
        layers: FullLayers,
        /// The base of the frequencies; by default 10,000.
        #[serde(default = "choices::rotary_base")]
        base: f64,
        /// Scaling of the frequencies for longer contexts.
        #[serde(default)]
        scaling: RotaryScaling,
    },
}

impl LayerPositions {
    /// The blocks.
    pub const fn layers(&self) -> &FullLayers {
        match self {
            Self::None { layers } | Self::Rotary { layers, .. } => layers,
        }
    }

    pub(crate) const fn layers_mut(&mut self) -> &mut FullLayers {
        match self {
            Self::None { layers } | Self::Rotary { layers, .. } => layers,
        }
    }
}

/// Biases of attention scores by the distance of query and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelativePositions {
    /// Number of buckets, those of both directions together; by default 32.
    #[serde(default = "default_buckets")]
    pub buckets: usize,
    /// All distances from this one on share a bucket; by default 128.
    #[serde(default = "default_max_distance")]
    pub max_distance: usize,
}

const fn default_buckets() -> usize {
    32
}

const fn default_max_distance() -> usize {
    128
}
