//! The learning rate schedule, a pure function of the step. Resuming needs no state.

use std::f64::consts::PI;

use burn::optim::LearningRate;
use burn::optim::lr_scheduler::LrScheduler;
use burn::tensor::backend::Backend;

use crate::config::ScheduleConfig;

/// The learning rate schedule of a run, usable as a Burn scheduler.
///
/// ```
/// use burn::optim::lr_scheduler::LrScheduler;
/// use emberlm_trainer::ScheduleConfig;
/// use emberlm_trainer::schedule::LearningRateSchedule;
///
/// let mut schedule = LearningRateSchedule::new(ScheduleConfig::default(), 2000);
/// assert_eq!(schedule.step(), schedule.at(0));
/// assert_eq!(schedule.step(), schedule.at(1));
/// ```
#[derive(Clone, Debug)]
pub struct LearningRateSchedule {
    config: ScheduleConfig,
    /// The number of steps of the run.
    steps: usize,
    /// The number of calls of [`LrScheduler::step`].
    done: usize,
}

impl LearningRateSchedule {
    /// The schedule of a run of `steps`, at its start.
    pub fn new(config: ScheduleConfig, steps: usize) -> Self {
        Self {
            config,
            steps,
            done: 0,
        }
    }

    /// The schedule after `done` steps, for a resumed run.
    pub fn resumed_at(self, done: usize) -> Self {
        Self { done, ..self }
    }

    /// The learning rate of the step after `done` completed steps.
    pub fn at(&self, done: usize) -> f64 {
        learning_rate(&self.config, self.steps, done)
    }
}

impl LrScheduler for LearningRateSchedule {
    type Record<B: Backend> = usize;

    fn step(&mut self) -> LearningRate {
        let rate = self.at(self.done);
        self.done += 1;
        rate
    }

    fn to_record<B: Backend>(&self) -> usize {
        self.done
    }

    fn load_record<B: Backend>(self, record: usize) -> Self {
        self.resumed_at(record)
    }
}

/// The learning rate of the step after `done` completed steps, in a run of `steps`.
///
/// While `done < warmup_steps`, every schedule returns `peak · (done + 1) / (warmup_steps + 1)`, as in
/// nanoGPT. After that, let `x` be the fraction completed between the end of the warm-up and the end of the
/// decay, which is `decay_steps` or the last step:
///
/// | schedule | rate |
/// |---|---|
/// | `constant` | `peak` |
/// | `cosine` | `min + (peak - min) · (1 + cos πx) / 2` (Loshchilov and Hutter 2017, one cycle) |
/// | `linear` | `min + (peak - min) · (1 - x)` |
/// | `inverse_sqrt` | `max(min, peak · √((warmup_steps + 1) / (done + 1)))` (Vaswani et al. 2017, section 5.3) |
/// | `warmup_stable_decay` | `peak`, and over the last `cooldown_steps` before the end `min + (peak - min) · (1 - y)` with `y` the part of them done (Hu et al. 2024, with the straight cooldown of Hägele et al. 2024) |
/// | `exponential` | `initial · (peak / initial)^z` with `z = done / (steps - 1)`: the last step has `peak` (Smith 2017) |
///
/// After the end of the decay, the learning rate is `min`. `constant` and `inverse_sqrt` never end.
pub fn learning_rate(config: &ScheduleConfig, steps: usize, done: usize) -> f64 {
    let (peak, min) = (config.learning_rate(), config.min_learning_rate());
    let warmup = config.warmup_steps();
    let end = config.decay_end(steps);
    if done < warmup {
        return peak * (done + 1) as f64 / (warmup + 1) as f64;
    }
    // The completed fraction between step `from` and the end. `None` after the end.
    let progress = |from: usize| {
        let way = end.saturating_sub(from);
        (done < end).then(|| done.saturating_sub(from) as f64 / way as f64)
    };
    let line = |progress: Option<f64>| match progress {
        Some(progress) => min + (peak - min) * (1.0 - progress),
        None => min,
    };
    match config {
        ScheduleConfig::Constant(_) => peak,
        ScheduleConfig::Exponential(_) => {
            let last = steps.saturating_sub(1).max(1);
            min * (peak / min).powf(done.min(last) as f64 / last as f64)
        }
        ScheduleConfig::Cosine(_) => match progress(warmup) {
            Some(progress) => min + (peak - min) * 0.5 * (1.0 + (PI * progress).cos()),
            None => min,
        },
        ScheduleConfig::Linear(_) => line(progress(warmup)),
        ScheduleConfig::InverseSqrt(_) => {
            let root = ((warmup + 1) as f64 / (done + 1) as f64).sqrt();
            (peak * root).max(min)
        }
        // A cooldown that would begin within the warm-up begins after it.
        ScheduleConfig::WarmupStableDecay(cooldown) => line(progress(
            end.saturating_sub(cooldown.cooldown_steps).max(warmup),
        )),
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::Flex;

    use super::*;
    use crate::config::{
        ConstantConfig, CooldownConfig, DecayConfig, ExponentialConfig, InverseSqrtConfig,
        ScheduleKind,
    };

    const STEPS: usize = 2000;

    #[test]
    fn the_scheduler_returns_the_learning_rate_of_each_step() {
        let config = of(ScheduleKind::WarmupStableDecay, 1e-4);
        let schedule = || LearningRateSchedule::new(config.clone(), STEPS);
        let mut first = schedule();
        for done in 0..1300 {
            assert_eq!(first.step(), learning_rate(&config, STEPS, done));
        }
        let record = first.to_record::<Flex>();
        let mut resumed = schedule().load_record::<Flex>(record);
        for done in 1300..2100 {
            assert_eq!(resumed.step(), learning_rate(&config, STEPS, done));
        }
    }

    /// Warm-up 100, end 2000, from 1e-3 to `min`, with a cooldown of 400.
    fn of(kind: ScheduleKind, min: f64) -> ScheduleConfig {
        decaying(kind, min, 0, 400)
    }

    fn decaying(
        kind: ScheduleKind,
        min_learning_rate: f64,
        decay_steps: usize,
        cooldown_steps: usize,
    ) -> ScheduleConfig {
        let decay = DecayConfig {
            min_learning_rate,
            decay_steps,
            ..DecayConfig::default()
        };
        match kind {
            ScheduleKind::Constant => ScheduleConfig::Constant(ConstantConfig::default()),
            ScheduleKind::Cosine => ScheduleConfig::Cosine(decay),
            ScheduleKind::Linear => ScheduleConfig::Linear(decay),
            ScheduleKind::Exponential => ScheduleConfig::Exponential(ExponentialConfig {
                learning_rate: 1e-3,
                initial_learning_rate: min_learning_rate,
            }),
            ScheduleKind::InverseSqrt => ScheduleConfig::InverseSqrt(InverseSqrtConfig {
                min_learning_rate,
                ..InverseSqrtConfig::default()
            }),
            ScheduleKind::WarmupStableDecay => ScheduleConfig::WarmupStableDecay(CooldownConfig {
                min_learning_rate,
                decay_steps,
                cooldown_steps,
                ..CooldownConfig::default()
            }),
        }
    }

    #[track_caller]
    fn assert_rates(config: &ScheduleConfig, expected: &[(usize, f64)]) {
        for &(done, expected) in expected {
            let rate = learning_rate(config, STEPS, done);
            assert!((rate / expected - 1.0).abs() < 1e-12, "{done}: {rate}");
        }
    }

    // By hand from nanoGPT's formula with warm-up 100, decay 2000, 1e-3 to 1e-4. The steps 575 and 1999 are
    // from transformers' get_cosine_with_min_lr_schedule_with_warmup(100, 2000, min_lr_rate=0.1).
    #[test]
    fn cosine_matches_nanogpt() {
        let expected = [
            (0, 1e-3 / 101.0),
            (99, 1e-3 * 100.0 / 101.0),
            (100, 1e-3),
            (575, 0.000_868_198_051_533_946_4),
            (1050, 5.5e-4),
            (1999, 0.000_100_000_615_141_408_41),
            (2000, 1e-4),
            (1_000_000, 1e-4),
        ];
        assert_rates(&of(ScheduleKind::Cosine, 1e-4), &expected);
    }

    #[test]
    fn a_decay_that_ends_within_the_warm_up_continues_at_the_minimum() {
        let decays = [
            ScheduleKind::Cosine,
            ScheduleKind::Linear,
            ScheduleKind::WarmupStableDecay,
        ];
        for schedule in decays {
            let config = decaying(schedule, 1e-4, 50, 10);
            assert!(learning_rate(&config, STEPS, 99) > 1e-4);
            assert_eq!(learning_rate(&config, STEPS, 100), 1e-4);
        }
    }

    // transformers' get_constant_schedule_with_warmup(101) at done + 1.
    #[test]
    fn constant_matches_transformers() {
        let expected = [
            (0, 9.900_990_099_009_901e-6),
            (99, 0.000_990_099_009_900_990_1),
            (100, 1e-3),
            (2999, 1e-3),
        ];
        assert_rates(&of(ScheduleKind::Constant, 1e-4), &expected);
    }

    // transformers' get_linear_schedule_with_warmup(100, 2000); the last row, with a minimum, by hand.
    #[test]
    fn linear_matches_transformers() {
        let expected = [
            (100, 1e-3),
            (101, 0.000_999_473_684_210_526_4),
            (575, 0.000_75),
            (1050, 0.0005),
            (1999, 5.263_157_894_736_842e-7),
        ];
        let config = of(ScheduleKind::Linear, 0.0);
        assert_rates(&config, &expected);
        assert_eq!(learning_rate(&config, STEPS, 2000), 0.0);
        assert_eq!(learning_rate(&config, STEPS, 2100), 0.0);
        let expected = [(1050, 5.5e-4), (2000, 1e-4), (2100, 1e-4)];
        assert_rates(&of(ScheduleKind::Linear, 1e-4), &expected);
    }

    // numpy.geomspace(1e-7, 1e-3, 2000)
    #[test]
    fn exponential_matches_numpy() {
        let expected = [
            (0, 1e-7),
            (1, 1.004_618_104_651_589_8e-7),
            (1000, 1.002_306_392_602_376_8e-5),
            (1999, 1e-3),
            (2100, 1e-3),
        ];
        assert_rates(&of(ScheduleKind::Exponential, 1e-7), &expected);
        let one_step = ExponentialConfig::default();
        let only = learning_rate(&ScheduleConfig::Exponential(one_step.clone()), 1, 0);
        assert_eq!(only, one_step.initial_learning_rate);
    }

    // transformers' get_inverse_sqrt_schedule(101) at done + 1.
    #[test]
    fn inverse_sqrt_matches_transformers_and_keeps_the_minimum() {
        let expected = [
            (0, 9.900_990_099_009_901e-6),
            (50, 0.000_504_950_495_049_505),
            (100, 1e-3),
            (101, 0.000_995_085_965_347_402_9),
            (201, 0.000_707_106_781_186_547_5),
            (403, 0.0005),
            (1009, 0.000_316_227_766_016_837_94),
            (2000, 0.000_224_665_891_088_724_57),
            (39_999, 5.024_937_810_560_445e-5),
        ];
        assert_rates(&of(ScheduleKind::InverseSqrt, 0.0), &expected);
        let expected = [(403, 0.0005), (10_099, 1e-4), (39_999, 1e-4)];
        assert_rates(&of(ScheduleKind::InverseSqrt, 1e-4), &expected);
    }

    // transformers' get_wsd_schedule(100, num_decay_steps=400, num_stable_steps=1500, decay_type="linear",
    // min_lr_ratio=0.1), after the warm-up.
    #[test]
    fn warmup_stable_decay_matches_transformers() {
        let expected = [
            (100, 1e-3),
            (1599, 1e-3),
            (1600, 1e-3),
            (1601, 0.000_997_75),
            (1700, 0.000_775),
            (1800, 0.000_55),
            (1999, 0.000_102_25),
            (2000, 1e-4),
            (2100, 1e-4),
        ];
        assert_rates(&of(ScheduleKind::WarmupStableDecay, 1e-4), &expected);
        // A cooldown that would begin at 40 begins at 100, where the warm-up ends.
        let long = decaying(ScheduleKind::WarmupStableDecay, 0.0, 0, 1960);
        assert_rates(
            &long,
            &[(99, 1e-3 * 100.0 / 101.0), (100, 1e-3), (1050, 5e-4)],
        );
    }
}
