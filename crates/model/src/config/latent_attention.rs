//! Attention whose keys and values are computed from latent vectors.

use serde::{Deserialize, Serialize};

/// Latent attention (DeepSeek-AI 2024, [2405.04434](https://arxiv.org/abs/2405.04434)). The cache holds a latent vector and the
/// rotated part of a key per token, whatever the number of heads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatentAttention {
    /// Width of the latents that keys and values are computed from.
    pub rank: usize,
    /// Width of the latents that queries are computed from; by default they are computed from the block's input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_rank: Option<usize>,
    /// The last elements of a head of queries or keys, which are rotated; those of keys are the same in all heads. By default
    /// half of `head_dim`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rope_dim: Option<usize>,
    /// Width of a head of values; by default `head_dim`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_dim: Option<usize>,
}

impl LatentAttention {
    /// Rotated elements of a head that is `head_dim` wide.
    pub fn rope_dim_for(&self, head_dim: usize) -> usize {
        self.rope_dim.unwrap_or(head_dim / 2)
    }
}
