//! The options of attention: reach, scale, soft cap, dropout and precision.

use crate::Precision;

/// The keys that a query can attend to.
///
/// Query `i` of `q_len` is at key position `p = k_len - q_len + i`, so `q_len` must not exceed `k_len`. With
/// [`Reach::Full`] the two lengths are independent, as in cross-attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Keys `j <= p`.
    #[default]
    Causal,
    /// Keys `j <= p` with `j > p - tokens` or `j < global_tokens`. Within a document that begins at key `d`, the
    /// last bound is `d + global_tokens`.
    Window {
        /// The size of the window: the number of most recent keys, the query's own included.
        tokens: usize,
        /// The number of keys at the start of a sequence or document that every later query can attend to
        /// (Beltagy et al. 2020, "Longformer").
        global_tokens: usize,
    },
    /// Keys `p - distance <= j <= p + distance`, a window in both directions.
    Local {
        /// The largest distance between a query and a key.
        distance: usize,
    },
    /// Every key.
    Full,
}

impl Reach {
    /// The reach without its window: [`Reach::Causal`] or [`Reach::Full`].
    pub const fn without_window(self) -> Self {
        match self {
            Self::Causal | Self::Window { .. } => Self::Causal,
            Self::Local { .. } | Self::Full => Self::Full,
        }
    }
}

/// The number of keys that the CPU kernels sum in one group. Skipping whole blocks of keys that are invisible to
/// every query leaves the output bit-identical.
pub const KEY_BLOCK: usize = 512;

/// Options of attention with scores `s = scale · q kᵀ`, or `cap · tanh(scale · q kᵀ / cap)` with a soft cap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionOptions {
    /// The keys that a query can attend to.
    pub reach: Reach,
    /// Factor on the scores, usually `1/√head_dim`.
    pub scale: f64,
    /// Bounds the scores to `±cap` by `cap · tanh(s / cap)` (Gemma Team 2024, "Gemma 2"), before the bias and the
    /// mask are added.
    pub soft_cap: Option<f64>,
    /// The probability of dropping a weight after the softmax. The remaining weights are multiplied by
    /// `1/(1 - p)`. Only applies in training.
    pub dropout: f64,
    /// The rounding of the operands of matrix products: queries, keys, weights, values and their gradients.
    /// Scores and softmax stay in f32. flex rounds only to bfloat16, where the CPU has AMX and there are enough queries and
    /// keys ([`crate::cpu::attention`]).
    pub precision: Precision,
}
