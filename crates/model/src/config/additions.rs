//! Learned additions to the blocks of a decoder: value embeddings and the mix of the residual stream.

use serde::{Deserialize, Serialize};

use super::FullLayers;

/// Value embeddings (Zhou et al. 2024, "Value Residual Learning"; nanochat's gate): in some blocks the values of a token are
/// `v + 2 σ(W x) e`, where `e` is a vector of the token and `x` the first elements of the attention's input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueEmbeddings {
    /// The blocks that have them; by default every second one.
    #[serde(default = "ValueEmbeddings::every_second")]
    pub layers: FullLayers,
    /// Number of elements that the gate reads; by default 32, or `d_model` if that is less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_inputs: Option<usize>,
}

impl ValueEmbeddings {
    const fn every_second() -> FullLayers {
        FullLayers::Every { every: 2 }
    }

    /// Elements that the gate reads in a model of width `d_model`.
    pub fn gate_inputs_for(&self, d_model: usize) -> usize {
        self.gate_inputs.unwrap_or(32.min(d_model))
    }
}

impl Default for ValueEmbeddings {
    fn default() -> Self {
        Self {
            layers: Self::every_second(),
            gate_inputs: None,
        }
    }
}

/// The input of each block as `a x + b x₀`, with the residual stream `x`, the embeddings `x₀` and two learned factors per
/// block (modded-nanogpt's "x₀ lambdas").
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResidualMix {
    /// `a` at the start; by default 1.
    #[serde(default = "ResidualMix::whole")]
    pub stream: f64,
    /// `b` at the start; by default 0.1.
    #[serde(default = "ResidualMix::tenth")]
    pub embedding: f64,
}

impl ResidualMix {
    const fn whole() -> f64 {
        1.0
    }

    const fn tenth() -> f64 {
        0.1
    }
}

impl Default for ResidualMix {
    fn default() -> Self {
        Self {
            stream: Self::whole(),
            embedding: Self::tenth(),
        }
    }
}

/// Linear layers that start with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ZeroInit {
    /// The untied head.
    Head,
    /// The layers that write to the residual stream.
    Residual,
}
