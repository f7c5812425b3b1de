//! Changes of the rotary positions: scaled frequencies, and blocks with other positions.

use serde::{Deserialize, Serialize};

use super::FullLayers;

/// A change of the rotary frequencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum RotaryScaling {
    /// Unchanged frequencies.
    #[default]
    None,
    /// Divides all frequencies by a factor (Chen et al. 2023, "position interpolation").
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// LLaMA 3.1's scaling: divides long wavelengths, keeps short ones, with a smooth ramp between.
    Llama3 {
        /// The divisor of the longest wavelengths.
        factor: f64,
        /// Wavelengths above `original_seq_len / low_frequency_factor` are divided by the full factor.
        low_frequency_factor: f64,
        /// Wavelengths below `original_seq_len / high_frequency_factor` stay unchanged.
        high_frequency_factor: f64,
        /// The context length that the frequencies were trained for.
        original_seq_len: usize,
    },
    /// NTK-aware scaling for a context above the trained one: the base grows by
    /// `(factor · seq_len / original_seq_len - (factor - 1))^(dims / (dims - 2))`. Within it, frequencies are unchanged.
    Dynamic {
        /// The growth of the scaling with the context.
        factor: f64,
        /// The context length that the frequencies were trained for.
        original_seq_len: usize,
    },
    /// YaRN (Peng et al. 2023): divides the frequencies of pairs that make few turns within the trained context, keeps
    /// those that make many, with a ramp over the pairs between, and multiplies cosines and sines by a factor.
    Yarn {
        /// The divisor of the lowest frequencies.
        factor: f64,
        /// Pairs with more turns than this keep their frequency.
        #[serde(default = "default_beta_fast")]
        beta_fast: f64,
        /// Pairs with fewer turns than this have their frequency divided by the full factor.
        #[serde(default = "default_beta_slow")]
        beta_slow: f64,
        /// Factor on cosines and sines; by default `0.1 · ln(factor) + 1`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attention_factor: Option<f64>,
        /// True if the ramp begins and ends at whole pairs.
        #[serde(default = "default_truncate")]
        truncate: bool,
        /// The context length that the frequencies were trained for.
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

/// Positions of some blocks that differ from the model's rotary ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum LayerPositions {
    /// These blocks do not rotate queries and keys (SmolLM3).
    None {
        /// The blocks.
        layers: FullLayers,
    },
    /// These blocks rotate the same elements by other angles (Gemma 3).
    Rotary {
        /// The blocks.
        layers: FullLayers,
        /// The base of the frequencies.
        base: f64,
        /// A change of the frequencies for longer contexts.
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
