//! Blocks with a gated delta net in place of the attention.

use serde::{Deserialize, Serialize};

use super::FullLayers;

/// Gated delta nets (Yang et al. 2024) in most blocks of a decoder, as in Qwen3-Next. The others keep the attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeltaNets {
    /// Heads of queries and keys; by default the model's `heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_heads: Option<usize>,
    /// Heads of values, a multiple of `key_heads`, which is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_heads: Option<usize>,
    /// Width of a head of queries or keys; by default the model's `head_dim`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_dim: Option<usize>,
    /// Width of a head of values; by default `key_dim`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_dim: Option<usize>,
    /// Taps of the convolutions; by default 4.
    #[serde(default = "DeltaNets::four")]
    pub taps: usize,
    /// The blocks that keep the attention; by default every fourth one.
    #[serde(default = "DeltaNets::every_fourth")]
    pub full_layers: FullLayers,
}

impl DeltaNets {
    const fn four() -> usize {
        4
    }

    const fn every_fourth() -> FullLayers {
        FullLayers::Every { every: 4 }
    }

    /// The sorted indices of the blocks with delta nets in a model of `n_layers` blocks.
    pub fn layers(&self, n_layers: usize) -> Vec<usize> {
        let full = self.full_layers.layers(n_layers);
        let is_full = |layer: &usize| full.binary_search(layer).is_ok();
        (0..n_layers).filter(|layer| !is_full(layer)).collect()
    }
}

impl Default for DeltaNets {
    fn default() -> Self {
        Self {
            key_heads: None,
            value_heads: None,
            key_dim: None,
            value_dim: None,
            taps: Self::four(),
            full_layers: Self::every_fourth(),
        }
    }
}
