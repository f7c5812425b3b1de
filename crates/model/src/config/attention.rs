//! Attention settings: the mechanism and the attention window.

use serde::{Deserialize, Serialize};

/// Attention mechanism: how values are weighted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum AttentionKind {
    /// Weights are the softmax of the scores.
    Softmax {
        /// Limits attention to the newest tokens; by default, a token attends to every earlier one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<Window>,
        /// Factor on the scores; by default `1/√head_dim`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scale: Option<f64>,
        /// Bounds scores to ±cap by `cap · tanh(score / cap)`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        soft_cap: Option<f64>,
        /// A learned score per head that takes part in the softmax and has no value (gpt-oss), so that a head can attend to nothing.
        #[serde(default, skip_serializing_if = "super::choices::is_no")]
        sinks: bool,
    },
    /// Unbiased estimate of the scores' exponentials by positive random features (Choromanski et al. 2021,
    /// "Performer"). Time is linear in the sequence length, and running sums replace the growing cache.
    Linear {
        /// Random features per head, shared by all heads of a block; by default `4 · head_dim`. The error falls roughly
        /// as `1/√features`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        features: Option<usize>,
        /// Seed of the features, which are neither trained nor stored with the weights.
        #[serde(default)]
        seed: u64,
    },
}

impl AttentionKind {
    /// Softmax attention to every earlier token, with the default scale and no cap.
    pub const SOFTMAX: Self = Self::scaled(None);

    /// Softmax attention to every earlier token, with a factor on the scores.
    pub const fn scaled(scale: Option<f64>) -> Self {
        Self::Softmax {
            window: None,
            scale,
            soft_cap: None,
            sinks: false,
        }
    }

    /// Softmax attention to a window.
    pub const fn windowed(window: Window) -> Self {
        Self::Softmax {
            window: Some(window),
            scale: None,
            soft_cap: None,
            sinks: false,
        }
    }
}

impl Default for AttentionKind {
    fn default() -> Self {
        Self::SOFTMAX
    }
}

/// A sliding window: a token attends to the newest `tokens` tokens, including itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Window length in tokens, at least 1.
    pub tokens: usize,
    /// Number of tokens at the beginning of the sequence that every token attends to.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub global_tokens: usize,
    /// Blocks that ignore the window and attend to every earlier token.
    #[serde(default, skip_serializing_if = "FullLayers::is_none")]
    pub full_layers: FullLayers,
}

/// Blocks that ignore the attention window: a list of indices, or `{ every = 2 }`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FullLayers {
    /// Block indices, from 0.
    Listed(Vec<usize>),
    /// The last block of each group of `every` blocks.
    Every {
        /// Group size, at least 1.
        every: usize,
    },
}

impl FullLayers {
    /// No block.
    pub const NONE: Self = Self::Listed(Vec::new());

    fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// The sorted indices of these blocks in a model of `n_layers` blocks. Listed indices are not checked.
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

/// The elements that one norm of queries or keys covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QkNormSpan {
    /// Each head is normalized separately, with the same gain.
    #[default]
    Head,
    /// All heads are normalized together, with a gain for each element (OLMo 2, OLMoE).
    Projection,
}

impl QkNormSpan {
    pub(super) fn is_head(&self) -> bool {
        *self == Self::Head
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}
