//! The options of an attention: its reach, scale, soft cap, dropout and precision.

use crate::Precision;

/// The keys that a query sees.
///
/// Under [`Reach::Causal`] and [`Reach::Window`] query `i` of `q_len` is at position `p = k_len - q_len + i` of the keys, so
/// that `q_len` must not exceed `k_len`. Under [`Reach::Full`] the two lengths are independent, as in cross-attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Key `j` where `j <= p`.
    #[default]
    Causal,
    /// Key `j` where `j <= p`, and `j > p - tokens` or `j < global_tokens`. Within documents, which begin at key `d`, the
    /// second bound is `d + global_tokens`.
    Window {
        /// The newest keys that a query sees, its own among them.
        tokens: usize,
        /// The first keys of a sequence or document, which every later query sees (Beltagy et al. 2020, "Longformer").
        global_tokens: usize,
    },
    /// Every key.
    Full,
}

/// Keys that the CPU's kernels sum in one group. Leaving out whole blocks of keys that no query sees does not change their output
/// in any bit.
pub const KEY_BLOCK: usize = 512;

/// Options of an attention, whose scores are `s = scale · q kᵀ`, or `cap · tanh(scale · q kᵀ / cap)` with a soft cap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionOptions {
    /// The keys that a query sees.
    pub reach: Reach,
    /// Factor on the scores, commonly `1/√head_dim`.
    pub scale: f64,
    /// Bounds the scores to `±cap` by `cap · tanh(s / cap)` (Gemma Team 2024, "Gemma 2"), before a bias and the mask.
    pub soft_cap: Option<f64>,
    /// Probability of dropping a weight after the softmax; the others are multiplied by `1/(1 - p)`. Acts in training only.
    pub dropout: f64,
    /// Rounding of the products' factors: queries, keys, weights, values and their gradients. Scores and softmax stay
    /// f32. flex computes all of them in f32.
    pub precision: Precision,
}
