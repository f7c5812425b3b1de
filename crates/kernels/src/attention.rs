//! How an attention is scaled, limited and dropped out.

use crate::Precision;

/// Options of causal attention. Query `i` of `q_len` stands at position `p = k_len - q_len + i` and sees key `j` where
/// `j <= p`, and with a window where `j > p - window` or `j < global_tokens` besides. Where documents
/// are isolated it sees its own alone, which begins at key `d`: where `j >= d`, and `d + global_tokens` is the bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionOptions {
    /// Factor on the scores, commonly `1/√head_dim`.
    pub scale: f64,
    /// Sees only the `window` newest keys, its own among them.
    pub window: Option<usize>,
    /// The first so many keys, of each document where they are isolated, are seen from every later position, whatever the window (Beltagy et al. 2020).
    pub global_tokens: usize,
    /// Probability with which a weight is dropped after the softmax, the rest scaled by `1/(1 - p)`. Acts in
    /// [`crate::Backend::attention_training`], and so under autodiff only.
    pub dropout: f64,
    /// How the factors of its products are rounded: queries, keys, weights, values and their gradients; scores and softmax stay
    /// f32. flex makes them in f32 whatever is asked for.
    pub precision: Precision,
}
