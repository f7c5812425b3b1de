//! The terms of the head's loss beside the cross-entropy.

/// The terms of the head's loss, summed over the tokens. With `x` a token's logits over `V` tokens of vocabulary, `y` its
/// target and `L = ln Σ exp x`, where a soft cap `c` has made `x = c · tanh(logit / c)` of each logit first:
///
/// ```text
/// loss = (1 - ε) · (L - x_y) + ε · (L - Σ_v x_v / V) + z · L²
///      = L - (1 - ε) · x_y - ε · Σ_v x_v / V + z · L²
/// ```
///
/// A token whose target is below 0 is ignored: its loss is 0, all terms of it, and it has no gradient (PyTorch's
/// `ignore_index`).
///
/// The default has none of it: the plain cross-entropy `L - x_y`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeadLossOptions {
    /// ε, the part of a target's probability that is spread evenly over the vocabulary, the target included (Szegedy et
    /// al. 2016; PyTorch's `label_smoothing`).
    pub label_smoothing: f64,
    /// z, the weight of the squared log of the softmax's denominator, which keeps it near 1 (Chowdhery et al. 2022,
    /// section 5, with 1e-4).
    pub z_loss: f64,
    /// c, the bound that no logit passes (Gemma 2, section 2); 0 for none.
    pub soft_cap: f64,
}
