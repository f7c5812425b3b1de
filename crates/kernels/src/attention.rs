//! How an attention is scaled, limited and dropped out.

/// Options of causal attention. Query `i` of `q_len` stands at position `k_len - q_len + i` and sees the keys at or
/// before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionOptions {
    /// Factor on the scores, commonly `1/√head_dim`.
    pub scale: f64,
    /// Sees only the `window` newest keys, its own among them.
    pub window: Option<usize>,
    /// Probability with which a weight is dropped after the softmax, the rest scaled by `1/(1 - p)`. Acts in
    /// [`crate::Backend::attention_training`], and so under autodiff only.
    pub dropout: f64,
}
