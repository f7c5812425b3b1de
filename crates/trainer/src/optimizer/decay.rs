//! Decoupled weight decay, and its schedule, a pure function of the step. Resuming needs no state.

use std::f64::consts::PI;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::schedule::learning_rate;
use crate::config::{DecayScheduleConfig, FinalDecayConfig, TrainConfig};

/// The weight decay of a parameter in a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decay {
    /// The decay, which is multiplied by the learning rate.
    pub(super) amount: f64,
    /// Leaves out elements that the update moves away from 0.
    pub(super) cautious: bool,
}

impl Decay {
    /// A parameter after its decay and an update `u`. Cautious decay is that of Chen et al. 2025 (arXiv 2510.12402,
    /// algorithm 1), elementwise:
    ///
    /// ```text
    /// p <- p · (1 - rate · decay) - rate · u
    /// p <- p · (1 - rate · decay · [u · p >= 0]) - rate · u      (cautious)
    /// ```
    pub(super) fn with_update<B: Backend, const D: usize>(
        self,
        parameter: Tensor<B, D>,
        update: Tensor<B, D>,
        rate: f64,
    ) -> Tensor<B, D> {
        let kept = 1.0 - rate * self.amount;
        let decayed = match self.cautious {
            false => parameter * kept,
            true => {
                let opposed = (parameter.clone() * update.clone()).lower_elem(0.0);
                (parameter.clone() * kept).mask_where(opposed, parameter)
            }
        };
        decayed - update * rate
    }
}

/// The factor on the weight decay of the step after `done` completed steps. With `x = done / steps`, the part of the run
/// that is done, `e` the final factor, and the learning rate `η`:
///
/// | schedule | factor |
/// |---|---|
/// | `constant` | `1` |
/// | `linear` | `e + (1 - e) · (1 - x)` |
/// | `cosine` | `e + (1 - e) · (1 + cos πx) / 2` |
/// | `learning_rate` | `η / η_peak` (Defazio 2025, arXiv 2506.02285) |
pub fn decay_factor(config: &TrainConfig, done: usize) -> f64 {
    let left = |end: &FinalDecayConfig, shape: fn(f64) -> f64| {
        let done = (done as f64 / config.steps as f64).min(1.0);
        end.final_factor + (1.0 - end.final_factor) * shape(done)
    };
    match &config.decay_schedule {
        DecayScheduleConfig::Constant(_) => 1.0,
        DecayScheduleConfig::Linear(end) => left(end, |x| 1.0 - x),
        DecayScheduleConfig::Cosine(end) => left(end, |x| 0.5 * (1.0 + (PI * x).cos())),
        DecayScheduleConfig::LearningRate(_) => match config.schedule.learning_rate() {
            0.0 => 1.0,
            peak => learning_rate(&config.schedule, config.steps, done) / peak,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DecayScheduleKind, ScheduleKind};

    fn factors(schedule: DecayScheduleConfig) -> [f64; 5] {
        let config = TrainConfig {
            steps: 200,
            decay_schedule: schedule,
            ..TrainConfig::default()
        };
        [0, 50, 100, 200, 300].map(|done| decay_factor(&config, done))
    }

    fn assert_close(found: [f64; 5], expected: [f64; 5]) {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
    }

    #[test]
    fn the_decay_falls_to_its_final_factor() {
        let end = |final_factor| FinalDecayConfig { final_factor };
        assert_eq!(factors(DecayScheduleConfig::default()), [1.0; 5]);
        let linear = factors(DecayScheduleConfig::Linear(end(0.0)));
        assert_close(linear, [1.0, 0.75, 0.5, 0.0, 0.0]);
        let linear = factors(DecayScheduleConfig::Linear(end(0.5)));
        assert_close(linear, [1.0, 0.875, 0.75, 0.5, 0.5]);
        let cosine = factors(DecayScheduleConfig::Cosine(end(0.0)));
        let quarter = 0.5 * (1.0 + 0.5_f64.sqrt());
        assert_close(cosine, [1.0, quarter, 0.5, 0.0, 0.0]);
    }

    #[test]
    fn the_decay_follows_the_learning_rate() {
        let mut config = TrainConfig {
            decay_schedule: DecayScheduleKind::LearningRate.into(),
            schedule: ScheduleKind::Cosine.into(),
            ..TrainConfig::default()
        };
        for done in [0, 50, 99, 500, 1999, 3000] {
            let rate = learning_rate(&config.schedule, config.steps, done);
            assert_eq!(decay_factor(&config, done), rate / 1e-3);
        }
        config.schedule.set_learning_rate(0.0);
        assert_eq!(decay_factor(&config, 7), 1.0);
    }
}
