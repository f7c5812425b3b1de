//! Skipping of steps whose loss or gradient norm is not finite, or far above the latest steps'.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{OutliersConfig, SkipConfig};
use crate::spread::Spread;

/// The losses and gradient norms of the latest steps, as part of a run's position.
///
/// A step is skipped if its loss or its gradients' norm is not finite, or, with [`SkipConfig::Outliers`] and once `window`
/// steps were seen, if either is more than `deviations` standard deviations (of the sample, with `n - 1`) above its mean
/// over those steps; what is far below is no harm. It is the rule of OLMo-core's `SkipStepOptimizer`, which has 6
/// deviations over 128 steps.
///
/// With [`SkipConfig::NonFinite`] nothing is remembered. With outliers, finite figures enter the window whether their step is taken or not, so that a change that lasts is soon the rule
/// and is not skipped for ever.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SkipHistory {
    /// Loss and norm of the latest steps, the oldest first; all finite.
    window: VecDeque<(f64, f64)>,
    /// Steps skipped since the last applied one.
    in_a_row: usize,
    /// Skipped steps in total.
    total: usize,
}

/// The decision on a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepDecision {
    /// The update is made.
    Accept,
    /// The update is skipped.
    Skip {
        /// The figure and its value.
        reason: String,
    },
    /// The update is skipped because scaled gradients overflowed, which does not count as a skipped step.
    Overflow {
        /// The new loss scale.
        reason: String,
    },
}

impl SkipHistory {
    /// Judges a step by its loss and its gradients' norm before clipping, and remembers both.
    pub fn judge(&mut self, loss: f64, norm: f64, config: &SkipConfig) -> StepDecision {
        let named = [("loss", loss), ("gradient norm", norm)];
        let infinite = named.iter().find(|(_, value)| !value.is_finite());
        let reason = match infinite {
            Some((name, value)) => Some(format!("the {name} is {value}")),
            None => self.too_far(named, config),
        };
        if let (None, SkipConfig::Outliers(OutliersConfig { window, .. })) = (infinite, config) {
            self.window.push_back((loss, norm));
            // More than one too many where the setting was lowered.
            while self.window.len() > *window {
                self.window.pop_front();
            }
        }
        match reason {
            Some(reason) => {
                self.in_a_row += 1;
                self.total += 1;
                StepDecision::Skip { reason }
            }
            None => {
                self.in_a_row = 0;
                StepDecision::Accept
            }
        }
    }

    /// A step that was skipped for a harmless reason: no targets in it, or a loss scale that was
    /// too large.
    pub fn pass_over(&mut self) {
        self.total += 1;
    }

    /// Steps skipped since the last applied one.
    pub fn in_a_row(&self) -> usize {
        self.in_a_row
    }

    /// Skipped steps in total.
    pub fn total(&self) -> usize {
        self.total
    }

    fn too_far(&self, named: [(&str, f64); 2], config: &SkipConfig) -> Option<String> {
        let SkipConfig::Outliers(OutliersConfig {
            deviations, window, ..
        }) = config
        else {
            return None;
        };
        if self.window.len() < *window {
            return None;
        }
        let window = self.window.len();
        let losses = self.window.iter().map(|&(loss, _)| loss);
        let norms = self.window.iter().map(|&(_, norm)| norm);
        let spreads = [Spread::of(losses), Spread::of(norms)];
        let mut judged = named.into_iter().zip(spreads);
        let ((name, value), Spread { mean, deviation }) = judged
            .find(|((_, value), spread)| value - spread.mean > deviations * spread.deviation)?;
        Some(format!(
            "the {name} is {value:.4}, more than {deviations} deviations of {deviation:.4} above {mean:.4}, its mean over {window} steps",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(deviations: f64, window: usize) -> SkipConfig {
        SkipConfig::Outliers(OutliersConfig {
            deviations,
            window,
            ..OutliersConfig::default()
        })
    }

    /// Losses 1, 2, 3, 4: mean 2.5, deviation √(5/3) = 1.2910; norms 10 times that.
    fn seen(config: &SkipConfig) -> SkipHistory {
        let mut watch = SkipHistory::default();
        for loss in [1.0, 2.0, 3.0, 4.0] {
            assert_eq!(watch.judge(loss, 10.0 * loss, config), StepDecision::Accept);
        }
        watch
    }

    fn reason(verdict: StepDecision) -> String {
        match verdict {
            StepDecision::Skip { reason } => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_no_number_is_skipped_always() {
        let config = SkipConfig::default();
        let mut watch = SkipHistory::default();
        let found = reason(watch.judge(f64::NAN, 1.0, &config));
        assert_eq!(found, "the loss is NaN");
        let found = reason(watch.judge(1.0, f64::INFINITY, &config));
        assert_eq!(found, "the gradient norm is inf");
        assert_eq!((watch.in_a_row(), watch.total()), (2, 2));
        assert_eq!(watch.judge(1.0, 1.0, &config), StepDecision::Accept);
        assert_eq!((watch.in_a_row(), watch.total()), (0, 2));
        assert_eq!(
            watch.judge(1e9, 1e9, &config),
            StepDecision::Accept,
            "no outliers"
        );
    }

    // By hand: 2.5 + 2 · 1.29099 = 5.08199.
    #[test]
    fn the_bound_is_so_many_deviations_above_the_mean() {
        let config = config(2.0, 4);
        assert_eq!(
            seen(&config).judge(5.08, 25.0, &config),
            StepDecision::Accept
        );
        let found = reason(seen(&config).judge(5.09, 25.0, &config));
        let expected = "the loss is 5.0900, more than 2 deviations of 1.2910 above 2.5000, its mean over 4 steps";
        assert_eq!(found, expected);
        assert_eq!(
            seen(&config).judge(2.5, 50.8, &config),
            StepDecision::Accept
        );
        let found = reason(seen(&config).judge(2.5, 50.9, &config));
        assert!(
            found.starts_with("the gradient norm is 50.9000, more than 2 deviations of 12.9099")
        );
        assert_eq!(
            seen(&config).judge(-1e6, 0.0, &config),
            StepDecision::Accept,
            "below"
        );
    }

    #[test]
    fn nothing_is_far_before_the_window_is_full() {
        let config = config(2.0, 5);
        assert_eq!(seen(&config).judge(1e6, 1e6, &config), StepDecision::Accept);
    }

    #[test]
    fn a_change_that_lasts_is_soon_the_rule() {
        let config = config(2.0, 4);
        let mut watch = seen(&config);
        let verdicts: Vec<bool> = (0..6)
            .map(|_| watch.judge(100.0, 25.0, &config) == StepDecision::Accept)
            .collect();
        assert_eq!(verdicts, [false, true, true, true, true, true]);
        assert_eq!(watch.total(), 1);
    }

    #[test]
    fn the_state_comes_back_to_the_bit_and_holds_no_nan() {
        let config = config(2.0, 4);
        let mut watch = seen(&config);
        watch.judge(f64::NAN, 0.1, &config);
        watch.judge(0.1 + 0.2, 1.0 / 3.0, &config);
        let text = serde_json::to_string(&watch).unwrap();
        assert!(!text.contains("null"), "{text}");
        assert!(text.ends_with(r#""in_a_row":0,"total":1}"#), "{text}");
        let mut back: SkipHistory = serde_json::from_str(&text).unwrap();
        assert_eq!(back, watch);
        for loss in [1.0, 9.0, 2.0] {
            let verdict = watch.judge(loss, loss, &config);
            assert_eq!(back.judge(loss, loss, &config), verdict);
        }
    }

    #[test]
    fn a_lowered_window_forgets_the_oldest() {
        let wide = config(2.0, 4);
        let mut watch = seen(&wide);
        let narrow = config(2.0, 2);
        assert_eq!(watch.judge(4.0, 40.0, &narrow), StepDecision::Accept);
        assert_eq!(watch.window, [(4.0, 40.0), (4.0, 40.0)]);
    }
}
