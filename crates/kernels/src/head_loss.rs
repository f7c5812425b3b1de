//! The options of the head's loss.

/// The terms of the head's loss, which is summed over the tokens. Let `x` be a token's logits over a vocabulary
/// of `V` tokens, `y` its target and `L = ln Σ exp x`. A soft cap `c` replaces each logit by
/// `x = c · tanh(logit / c)` first.
///
/// ```text
/// loss = (1 - ε) · (L - x_y) + ε · (L - Σ_v x_v / V) + z · L²
///      = L - (1 - ε) · x_y - ε · Σ_v x_v / V + z · L²
/// ```
///
/// Tokens with a negative target are ignored: all terms of their loss are 0, and they have no gradient (PyTorch's
/// `ignore_index`).
///
/// The default is the plain cross-entropy `L - x_y`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeadLossOptions {
    /// ε, the share of the target's probability that is spread evenly over the vocabulary, the target included
    /// (Szegedy et al. 2016; PyTorch's `label_smoothing`).
    pub label_smoothing: f64,
    /// z, the weight of the squared logarithm of the softmax's denominator. The term keeps the denominator near 1
    /// (Chowdhery et al. 2022, section 5, with 1e-4).
    pub z_loss: f64,
    /// c, the bound on the magnitude of the logits (Gemma 2, section 2); 0 disables it.
    pub soft_cap: f64,
}
