//! The attention as written: what it sees, and how it weighs it.

use serde::{Deserialize, Serialize};

/// How an attention weighs the tokens that it sees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum AttentionKind {
    /// By the softmax of the scores.
    Softmax {
        /// Limits attention to the newest tokens; without it every earlier token is seen.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<Window>,
        /// Factor on the scores; by default `1/√head_dim`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scale: Option<f64>,
        /// Bounds scores to ±cap by `cap · tanh(score / cap)`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        soft_cap: Option<f64>,
    },
    /// By an unbiased estimate of the scores' exponentials from positive random features (Choromanski et al. 2021,
    /// "Performer"): time linear in the sequence, and running sums in place of a cache that grows.
    Linear {
        /// Random features per head, the same for all heads of a block; by default `4 · head_dim`. The error falls about
        /// as `1/√features`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        features: Option<usize>,
        /// Seed of the features. They are not trained, and not stored with the weights.
        #[serde(default)]
        seed: u64,
    },
}

impl AttentionKind {
    /// Softmax attention to every earlier token, with the usual scale and no cap.
    pub const SOFTMAX: Self = Self::Softmax {
        window: None,
        scale: None,
        soft_cap: None,
    };

    /// Softmax attention to a window.
    pub const fn windowed(window: Window) -> Self {
        Self::Softmax {
            window: Some(window),
            scale: None,
            soft_cap: None,
        }
    }
}

impl Default for AttentionKind {
    fn default() -> Self {
        Self::SOFTMAX
    }
}

/// A sliding window: a token sees the newest `tokens` tokens, its own among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Its length, at least 1.
    pub tokens: usize,
    /// The first so many tokens of the sequence are seen from everywhere.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub global_tokens: usize,
    /// The blocks that see every earlier token all the same.
    #[serde(default, skip_serializing_if = "FullLayers::is_none")]
    pub full_layers: FullLayers,
}

/// Blocks without the model's window: a list, or `{ every = 2 }`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FullLayers {
    /// Their numbers, from 0.
    Listed(Vec<usize>),
    /// The last of every so many blocks.
    Every {
        /// At least 1.
        every: usize,
    },
}

impl FullLayers {
    /// No block.
    pub const NONE: Self = Self::Listed(Vec::new());

    fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// The blocks among `n_layers`, in order; those of a list are not checked.
    pub fn layers(&self, n_layers: usize) -> Vec<usize> {
        match self {
            Self::Listed(layers) => {
                let mut layers = layers.clone();
                layers.sort_unstable();
                layers.dedup();
                layers
            }
            Self::Every { every } => {
                let every = (*every).max(1);
                (every - 1..n_layers).step_by(every).collect()
            }
        }
    }

    /// Returns true if block `layer` is one of them.
    pub fn contains(&self, layer: usize) -> bool {
        match self {
            Self::Listed(layers) => layers.contains(&layer),
            Self::Every { every } => (layer + 1).is_multiple_of((*every).max(1)),
        }
    }
}

impl Default for FullLayers {
    fn default() -> Self {
        Self::NONE
    }
}

impl Window {
    /// A window in every block, without global tokens.
    pub const fn new(tokens: usize) -> Self {
        Self {
            tokens,
            global_tokens: 0,
            full_layers: FullLayers::NONE,
        }
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}
