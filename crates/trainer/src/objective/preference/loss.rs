//! The losses of a pair of completions.
//!
//! Let `c` and `r` be the summed log-probabilities of the chosen and the rejected completion under the model, `c₀` and `r₀`
//! those under the reference model, and `|c|` and `|r|` the completions' tokens. With `Δ = (c − c₀) − (r − r₀)`, `σ` the
//! logistic function and `ε` the label smoothing:
//!
//! ```text
//! dpo, sigmoid  −(1 − ε) ln σ(βΔ) − ε ln σ(−βΔ)
//! dpo, robust   (−(1 − ε) ln σ(βΔ) + ε ln σ(−βΔ)) / (1 − 2ε)
//! dpo, hinge    max(0, 1 − βΔ)
//! dpo, ipo      ((c − c₀)/|c| − (r − r₀)/|r| − 1/(2β))²
//! simpo         −(1 − ε) ln σ(x) − ε ln σ(−x)                 x = β (c/|c| − r/|r|) − γ
//! orpo          n − β ln σ(o(c/|c|) − o(r/|r|))                o(x) = x − ln(1 − eˣ)
//! ```
//!
//! KTO has labelled completions with the log-probabilities `c` and `c₀`, and `z = max(0, mean (m − m₀))`, where `m` and `m₀`
//! are those of mismatched sequences: a micro-batch's prompts with the completions of the records before. `z` has no gradient.
//!
//! ```text
//! kto           w (1 − σ(±(β (c − c₀) − βz)))                  + if the completion is desirable, with the weight w of its label
//! ```
//!
//! `n` is the mean cross-entropy per token of the chosen sequences of a micro-batch, with their prompts. Rewards are
//! `β (c − c₀)` for DPO and KTO, and `β c/|c|` for SimPO and ORPO.

use emberlm_data::PreferenceForm;

use crate::config::{DpoConfig, DpoLoss, KtoConfig, OrpoConfig, SimpoConfig};

/// A loss of preferences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PreferenceLoss {
    /// Direct preference optimization.
    Dpo {
        /// The loss of the margin.
        loss: DpoLoss,
        /// β.
        beta: f64,
        /// ε.
        label_smoothing: f64,
    },
    /// Odds ratio preference optimization.
    Orpo {
        /// β.
        beta: f64,
    },
    /// Simple preference optimization.
    Simpo {
        /// β.
        beta: f64,
        /// γ.
        gamma: f64,
        /// ε.
        label_smoothing: f64,
    },
    /// Kahneman-Tversky optimization.
    Kto {
        /// β.
        beta: f64,
        /// The weights of undesirable and desirable completions.
        weights: [f64; 2],
    },
}

/// The log-probabilities of a completion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LogProbability {
    /// Their sum under the model.
    pub(super) sum: f64,
    /// Their sum under the reference model; 0 for losses without one.
    pub(super) reference: f64,
    /// The completion's tokens.
    pub(super) tokens: usize,
}

impl LogProbability {
    fn mean(self) -> f64 {
        self.sum / self.tokens as f64
    }

    pub(super) fn ratio(self) -> f64 {
        self.sum - self.reference
    }
}

/// The loss of a pair, without the cross-entropy of ORPO.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PairLoss {
    pub(super) loss: f64,
    /// The derivatives with respect to the summed log-probabilities of the chosen and the rejected completion.
    pub(super) derivatives: [f64; 2],
    /// The rewards of both.
    pub(super) rewards: [f64; 2],
}

impl From<&DpoConfig> for PreferenceLoss {
    fn from(config: &DpoConfig) -> Self {
        Self::Dpo {
            loss: config.loss,
            beta: config.beta,
            label_smoothing: config.label_smoothing,
        }
    }
}

impl From<&OrpoConfig> for PreferenceLoss {
    fn from(config: &OrpoConfig) -> Self {
        Self::Orpo { beta: config.beta }
    }
}

impl From<&SimpoConfig> for PreferenceLoss {
    fn from(config: &SimpoConfig) -> Self {
        Self::Simpo {
            beta: config.beta,
            gamma: config.simpo_gamma,
            label_smoothing: config.label_smoothing,
        }
    }
}

impl From<&KtoConfig> for PreferenceLoss {
    fn from(config: &KtoConfig) -> Self {
        Self::Kto {
            beta: config.beta,
            weights: [config.undesirable_weight, config.desirable_weight],
        }
    }
}

impl PreferenceLoss {
    /// The form of its records.
    pub(crate) fn form(self) -> PreferenceForm {
        match self {
            Self::Kto { .. } => PreferenceForm::Labelled,
            Self::Dpo { .. } | Self::Orpo { .. } | Self::Simpo { .. } => PreferenceForm::Pairs,
        }
    }

    /// Returns true if the loss compares the model with a reference model.
    pub fn has_reference(self) -> bool {
        matches!(self, Self::Dpo { .. } | Self::Kto { .. })
    }

    /// Returns true if the cross-entropy of the chosen sequences is part of the loss.
    pub(super) fn learns_chosen(self) -> bool {
        matches!(self, Self::Orpo { .. })
    }

    /// The loss of a chosen and a rejected completion. For KTO `chosen` is the completion and `rejected` the mismatched
    /// sequence, `baseline` is z, and `label` is true if the completion is desirable.
    pub(super) fn of_pair(
        self,
        chosen: LogProbability,
        rejected: LogProbability,
        baseline: f64,
        label: bool,
    ) -> PairLoss {
        let (of_chosen, of_rejected) = (chosen.tokens as f64, rejected.tokens as f64);
        match self {
            Self::Dpo {
                loss,
                beta,
                label_smoothing,
            } => {
                let rewards = [beta * chosen.ratio(), beta * rejected.ratio()];
                let x = rewards[0] - rewards[1];
                let (loss, derivatives) = match loss {
                    DpoLoss::Sigmoid => {
                        let (loss, slope) = smoothed(x, label_smoothing, 1.0);
                        (loss, [beta * slope, -beta * slope])
                    }
                    DpoLoss::Robust => {
                        let (loss, slope) = smoothed(x, label_smoothing, -1.0);
                        let scale = 1.0 / (1.0 - 2.0 * label_smoothing);
                        let slope = beta * scale * slope;
                        (scale * loss, [slope, -slope])
                    }
                    // NaN stays NaN.
                    DpoLoss::Hinge if x >= 1.0 => (0.0, [0.0, 0.0]),
                    DpoLoss::Hinge => (1.0 - x, [-beta, beta]),
                    DpoLoss::Ipo => {
                        let margin = chosen.ratio() / of_chosen - rejected.ratio() / of_rejected;
                        let error = margin - 1.0 / (2.0 * beta);
                        let slope = 2.0 * error;
                        (error * error, [slope / of_chosen, -slope / of_rejected])
                    }
                };
                PairLoss {
                    loss,
                    derivatives,
                    rewards,
                }
            }
            Self::Kto { beta, weights } => {
                let reward = beta * chosen.ratio();
                let sign = if label { 1.0 } else { -1.0 };
                let weight = weights[usize::from(label)];
                let x = sign * (reward - beta * baseline);
                // 1 − σ(x) = σ(−x), whose derivative is −σ(x) σ(−x).
                let loss = weight * sigmoid(-x);
                PairLoss {
                    loss,
                    derivatives: [-sign * beta * loss * sigmoid(x), 0.0],
                    rewards: [reward, reward],
                }
            }
            Self::Simpo {
                beta,
                gamma,
                label_smoothing,
            } => {
                let rewards = [beta * chosen.mean(), beta * rejected.mean()];
                let x = rewards[0] - rewards[1] - gamma;
                let (loss, slope) = smoothed(x, label_smoothing, 1.0);
                let slope = beta * slope;
                PairLoss {
                    loss,
                    derivatives: [slope / of_chosen, -slope / of_rejected],
                    rewards,
                }
            }
            Self::Orpo { beta } => {
                let [odds_chosen, odds_rejected] = [chosen, rejected].map(|of| log_odds(of.mean()));
                let (loss, slope) = smoothed(odds_chosen.0 - odds_rejected.0, 0.0, 1.0);
                let slope = beta * slope;
                PairLoss {
                    loss: beta * loss,
                    derivatives: [
                        slope * odds_chosen.1 / of_chosen,
                        -slope * odds_rejected.1 / of_rejected,
                    ],
                    rewards: [beta * chosen.mean(), beta * rejected.mean()],
                }
            }
        }
    }
}

/// `−(1 − ε) ln σ(x) − sign · ε ln σ(−x)` and its derivative.
fn smoothed(x: f64, label_smoothing: f64, sign: f64) -> (f64, f64) {
    let kept = 1.0 - label_smoothing;
    let flipped = sign * label_smoothing;
    let loss = -kept * log_sigmoid(x) - flipped * log_sigmoid(-x);
    (loss, -kept * sigmoid(-x) + flipped * sigmoid(x))
}

/// `x − ln(1 − eˣ)` for a log-probability, and its derivative `1 / (1 − eˣ)`.
fn log_odds(x: f64) -> (f64, f64) {
    let complement = -x.exp_m1();
    (x - complement.ln(), 1.0 / complement)
}

fn log_sigmoid(x: f64) -> f64 {
    x.min(0.0) - (-x.abs()).exp().ln_1p()
}

fn sigmoid(x: f64) -> f64 {
    log_sigmoid(x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_probability(sum: f64, reference: f64, tokens: usize) -> LogProbability {
        LogProbability {
            sum,
            reference,
            tokens,
        }
    }

    fn all() -> Vec<PreferenceLoss> {
        let dpo = |loss, label_smoothing| PreferenceLoss::Dpo {
            loss,
            beta: 0.3,
            label_smoothing,
        };
        vec![
            dpo(DpoLoss::Sigmoid, 0.0),
            dpo(DpoLoss::Sigmoid, 0.2),
            dpo(DpoLoss::Robust, 0.2),
            dpo(DpoLoss::Hinge, 0.0),
            dpo(DpoLoss::Ipo, 0.0),
            PreferenceLoss::Orpo { beta: 0.3 },
            PreferenceLoss::Simpo {
                beta: 2.0,
                gamma: 0.5,
                label_smoothing: 0.1,
            },
            PreferenceLoss::Kto {
                beta: 0.3,
                weights: [0.5, 1.5],
            },
        ]
    }

    /// PyTorch's `logsigmoid` in float64 at a few margins; IPO's is `(3/2 − (−1)/4 − 1/0.6)²`.
    #[test]
    fn losses_have_their_definition() {
        let (chosen, rejected) = (
            log_probability(-5.0, -8.0, 2),
            log_probability(-7.0, -6.0, 4),
        );
        let found = all()
            .into_iter()
            .map(|loss| loss.of_pair(chosen, rejected, 0.0, true));
        let found: Vec<PairLoss> = found.collect();
        let x = 0.3_f64 * 4.0;
        let (kept, flipped) = ((1.0 + (-x).exp()).ln(), (1.0 + x.exp()).ln());
        let expected = [
            kept,
            0.8 * kept + 0.2 * flipped,
            (0.8 * kept - 0.2 * flipped) / 0.6,
            0.0,
            (1.5_f64 + 0.25 - 1.0 / 0.6).powi(2),
        ];
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                (found.loss - expected).abs() < 1e-12,
                "{found:?} {expected}"
            );
            assert!((found.rewards[0] - 0.9).abs() < 1e-12);
            assert!((found.rewards[1] + 0.3).abs() < 1e-12);
        }
    }

    #[test]
    fn derivatives_are_those_of_finite_differences() {
        for loss in all() {
            for (chosen, rejected) in [(-5.0, -7.0), (-9.0, -3.0), (-0.5, -0.25)] {
                let at = |c: f64, r: f64| {
                    let chosen = log_probability(c, -4.0, 3);
                    loss.of_pair(chosen, log_probability(r, -4.5, 5), 0.7, false)
                };
                let h = 1e-5;
                let numeric = [
                    (at(chosen + h, rejected).loss - at(chosen - h, rejected).loss) / (2.0 * h),
                    (at(chosen, rejected + h).loss - at(chosen, rejected - h).loss) / (2.0 * h),
                ];
                let exact = at(chosen, rejected).derivatives;
                for (numeric, exact) in numeric.iter().zip(exact) {
                    let error = (numeric - exact).abs();
                    assert!(error < 1e-7, "{loss:?}: {numeric} {exact}");
                }
            }
        }
    }

    #[test]
    fn extreme_margins_are_finite_and_nan_is_kept() {
        for loss in all() {
            for (chosen, rejected) in [(-1.0, -9000.0), (-9000.0, -1.0)] {
                let found = loss.of_pair(
                    log_probability(chosen, -10.0, 3),
                    log_probability(rejected, -10.0, 3),
                    1.0,
                    true,
                );
                assert!(found.loss.is_finite(), "{loss:?}");
                assert!(found.derivatives.iter().all(|d| d.is_finite()), "{loss:?}");
            }
            let nan = log_probability(f64::NAN, 0.0, 3);
            assert!(loss.of_pair(nan, nan, 0.0, true).loss.is_nan(), "{loss:?}");
        }
    }
}
