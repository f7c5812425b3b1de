//! The loss of a token of a sampled completion.
//!
//! With the log-probabilities `p` under the model, `p₀` under the model that sampled the completion, and `q` under the
//! reference model, and the advantage `A` of the completion:
//!
//! ```text
//! r = exp(p − p₀)
//! loss = −min(r A, clip(r, 1 − ε_low, 1 + ε_high) A) + β (exp(q − p) − (q − p) − 1)
//! ```

/// The settings of the loss of a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicyLoss {
    /// ε_low.
    pub epsilon_low: f64,
    /// ε_high.
    pub epsilon_high: f64,
    /// β.
    pub beta: f64,
}

/// The loss of a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TokenLoss {
    pub(super) loss: f64,
    /// The derivative with respect to `p`.
    pub(super) derivative: f64,
    /// The estimate of the KL divergence from the reference model; `None` without one.
    pub(super) kl: Option<f64>,
    /// True if the ratio is outside the clipping range, on the side where the advantage would push it further.
    pub(super) is_clipped: bool,
}

impl PolicyLoss {
    /// The loss of a token with the log-probabilities `now`, `old` and `reference`.
    pub(super) fn of_token(
        self,
        now: f64,
        old: f64,
        reference: Option<f64>,
        advantage: f64,
    ) -> TokenLoss {
        let ratio = (now - old).exp();
        let (low, high) = (1.0 - self.epsilon_low, 1.0 + self.epsilon_high);
        let is_clipped = (ratio < low && advantage < 0.0) || (ratio > high && advantage > 0.0);
        // NaN stays NaN.
        let (gain, slope) = match is_clipped {
            true => (ratio.clamp(low, high) * advantage, 0.0),
            false => (ratio * advantage, ratio * advantage),
        };
        let difference = reference.map(|reference| reference - now);
        let kl = difference.map(|x| x.exp() - x - 1.0);
        let kl_slope = difference.map(|x| 1.0 - x.exp());
        TokenLoss {
            loss: self.beta * kl.unwrap_or(0.0) - gain,
            derivative: self.beta * kl_slope.unwrap_or(0.0) - slope,
            kl,
            is_clipped,
        }
    }
}
