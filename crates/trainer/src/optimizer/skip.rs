//! Skips steps whose loss or gradient norm is not finite, or far above that of recent steps.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{OutliersConfig, SkipConfig};
use crate::report::spread::Spread;

/// The losses and gradient norms of the latest steps. Part of a run's state and saved in checkpoints.
///
/// A step is skipped if its loss or gradient norm is not finite. With [`SkipConfig::Outliers`], it is also
/// skipped if either value is more than `deviations` standard deviations (of the sample, with `n - 1`) above
/// its mean over the last `window` steps. Values far below the mean are harmless. This is the rule of
/// OLMo-core's `SkipStepOptimizer`, which uses 6 deviations over 128 steps.
///
/// Finite values enter the window even if their step is skipped. A lasting change thus becomes the norm and
/// is not skipped forever. With [`SkipConfig::NonFinite`], the window stays empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SkipHistory {
    /// Loss and gradient norm of the latest steps, oldest first; all finite.
    window: VecDeque<(f64, f64)>,
    /// Consecutive skipped steps, up to the last one.
    in_a_row: usize,
    /// The total number of skipped steps.
    total: usize,
}

/// The decision on a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepDecision {
    /// The update is applied.
    Accept,
    /// The update is skipped.
    Skip {
        /// The offending value.
        reason: String,
    },
    /// The update is skipped because scaled gradients overflowed. This does not count toward the limit of
    /// consecutive skipped steps.
    Overflow {
        /// The new loss scale.
        reason: String,
    },
}

impl SkipHistory {
    /// Judges a step by its loss and its gradient norm before clipping, and records both.
    pub fn judge(&mut self, loss: f64, norm: f64, config: &SkipConfig) -> StepDecision {
        let named = [("loss", loss), ("gradient norm", norm)];
        let infinite = named.iter().find(|(_, value)| !value.is_finite());
        let reason = match infinite {
            Some((name, value)) => Some(format!("the {name} is {value}")),
            None => self.too_far(named, config),
        };
        if let (None, SkipConfig::Outliers(OutliersConfig { window, .. })) = (infinite, config) {
            self.window.push_back((loss, norm));
            // There can be several to remove if the setting was lowered.
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

    /// Counts a step that was skipped for a harmless reason: no targets, or a loss scale that was too large.
    pub fn pass_over(&mut self) {
        self.total += 1;
    }

    /// Consecutive skipped steps, up to the last one.
    pub fn in_a_row(&self) -> usize {
        self.in_a_row
    }

    /// The total number of skipped steps.
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

    /// Losses 1, 2, 3, 4: mean 2.5, deviation √(5/3) = 1.2910. Norms are 10 times that.
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
    fn non_finite_steps_are_always_skipped() {
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
    fn outliers_exceed_the_mean_by_the_configured_deviations() {
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
    fn no_outliers_before_the_window_is_full() {
        let config = config(2.0, 5);
        assert_eq!(seen(&config).judge(1e6, 1e6, &config), StepDecision::Accept);
    }

    #[test]
    fn a_lasting_change_becomes_the_norm() {
        let config = config(2.0, 4);
        let mut watch = seen(&config);
        let verdicts: Vec<bool> = (0..6)
            .map(|_| watch.judge(100.0, 25.0, &config) == StepDecision::Accept)
            .collect();
        assert_eq!(verdicts, [false, true, true, true, true, true]);
        assert_eq!(watch.total(), 1);
    }

    #[test]
    fn the_history_round_trips_exactly_without_nan() {
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
