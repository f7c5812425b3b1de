//! The learning rate at a step: a plain function, so that nothing about it has to be carried or resumed.

use std::f64::consts::PI;

use burn::optim::LearningRate;
use burn::optim::lr_scheduler::LrScheduler;
use burn::tensor::backend::Backend;

use crate::config::{Schedule, TrainConfig};

/// The learning rates of a run, as a function of the step and as a scheduler of Burn's.
///
/// ```
/// use burn::optim::lr_scheduler::LrScheduler;
/// use emberlm_trainer::TrainConfig;
/// use emberlm_trainer::schedule::LearningRateSchedule;
///
/// let mut schedule = LearningRateSchedule::new(&TrainConfig::default());
/// assert_eq!(schedule.step(), schedule.at(0));
/// assert_eq!(schedule.step(), schedule.at(1));
/// ```
#[derive(Clone, Debug)]
pub struct LearningRateSchedule {
    config: TrainConfig,
    /// Steps that [`LrScheduler::step`] has returned the learning rate of.
    done: usize,
}

impl LearningRateSchedule {
    /// The schedule of a run's settings, at its beginning.
    pub fn new(config: &TrainConfig) -> Self {
        Self {
            config: config.clone(),
            done: 0,
        }
    }

    /// The schedule at step `done`, for a run that is resumed.
    pub fn resumed_at(self, done: usize) -> Self {
        Self { done, ..self }
    }

    /// The learning rate of the update after `done` earlier ones.
    pub fn at(&self, done: usize) -> f64 {
        learning_rate(&self.config, done)
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

/// The rate of the update after `done` earlier ones.
///
/// While `done < warmup_steps` it is `peak · (done + 1) / (warmup_steps + 1)`, as nanoGPT has it, whatever the schedule.
/// After that, with `x` the part of the way from the warm-up's end to the decay's end, which is `decay_steps` or the last
/// step:
///
/// | schedule | rate |
/// |---|---|
/// | `constant` | `peak` |
/// | `cosine` | `min + (peak - min) · (1 + cos πx) / 2` (Loshchilov and Hutter 2017, one cycle) |
/// | `linear` | `min + (peak - min) · (1 - x)` |
/// | `inverse_sqrt` | `max(min, peak · √((warmup_steps + 1) / (done + 1)))` (Vaswani et al. 2017, section 5.3) |
/// | `warmup_stable_decay` | `peak`, and over the last `cooldown_steps` before the end `min + (peak - min) · (1 - y)` with `y` the part of them done (Hu et al. 2024, with the straight cooldown of Hägele et al. 2024) |
///
/// From the decay's end on the rate is `min`, but for `constant` and `inverse_sqrt`, which have no end.
pub fn learning_rate(config: &TrainConfig, done: usize) -> f64 {
    let (peak, min) = (config.learning_rate, config.min_learning_rate);
    let warmup = config.warmup_steps;
    let end = decay_end(config);
    if done < warmup {
        return peak * (done + 1) as f64 / (warmup + 1) as f64;
    }
    // The part of the way from a step to the end; none past it.
    let progress = |from: usize| {
        let way = end.saturating_sub(from);
        (done < end).then(|| done.saturating_sub(from) as f64 / way as f64)
    };
    let line = |progress: Option<f64>| match progress {
        Some(progress) => min + (peak - min) * (1.0 - progress),
        None => min,
    };
    match config.schedule {
        Schedule::Constant => peak,
        Schedule::Cosine => match progress(warmup) {
            Some(progress) => min + (peak - min) * 0.5 * (1.0 + (PI * progress).cos()),
            None => min,
        },
        Schedule::Linear => line(progress(warmup)),
        Schedule::InverseSqrt => {
            let root = ((warmup + 1) as f64 / (done + 1) as f64).sqrt();
            (peak * root).max(min)
        }
        // A cooldown that would begin within the warm-up begins after it.
        Schedule::WarmupStableDecay => line(progress(
            end.saturating_sub(config.cooldown_steps).max(warmup),
        )),
    }
}

/// The step at which the decay ends.
pub(crate) fn decay_end(config: &TrainConfig) -> usize {
    match config.decay_steps {
        0 => config.steps,
        steps => steps,
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::Flex;

    use super::*;

    #[test]
    fn the_scheduler_returns_the_learning_rate_of_each_step() {
        let config = of(Schedule::WarmupStableDecay, 1e-4);
        let mut schedule = LearningRateSchedule::new(&config);
        for done in 0..1300 {
            assert_eq!(schedule.step(), learning_rate(&config, done));
        }
        let record = schedule.to_record::<Flex>();
        let mut resumed = LearningRateSchedule::new(&config).load_record::<Flex>(record);
        for done in 1300..2100 {
            assert_eq!(resumed.step(), learning_rate(&config, done));
        }
    }

    /// Warm-up 100, end 2000, 1e-3 to `min`.
    fn of(schedule: Schedule, min: f64) -> TrainConfig {
        TrainConfig {
            schedule,
            min_learning_rate: min,
            cooldown_steps: 400,
            ..TrainConfig::default()
        }
    }

    #[track_caller]
    fn assert_rates(config: &TrainConfig, expected: &[(usize, f64)]) {
        for &(done, expected) in expected {
            let rate = learning_rate(config, done);
            assert!((rate / expected - 1.0).abs() < 1e-12, "{done}: {rate}");
        }
    }

    // By hand from nanoGPT's formula with warm-up 100, decay 2000, 1e-3 to 1e-4; the steps 575 and 1999 from
    // transformers' get_cosine_with_min_lr_schedule_with_warmup(100, 2000, min_lr_rate=0.1).
    #[test]
    fn nano_gpts_schedule() {
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
        assert_rates(&of(Schedule::Cosine, 1e-4), &expected);
    }

    #[test]
    fn a_decay_that_ends_within_the_warm_up_goes_on_at_the_minimum() {
        let decays = [
            Schedule::Cosine,
            Schedule::Linear,
            Schedule::WarmupStableDecay,
        ];
        for schedule in decays {
            let config = TrainConfig {
                decay_steps: 50,
                cooldown_steps: 10,
                ..of(schedule, 1e-4)
            };
            assert!(learning_rate(&config, 99) > config.min_learning_rate);
            assert_eq!(learning_rate(&config, 100), config.min_learning_rate);
        }
    }

    // transformers' get_constant_schedule_with_warmup(101) at done + 1.
    #[test]
    fn constant_stays() {
        let expected = [
            (0, 9.900_990_099_009_901e-6),
            (99, 0.000_990_099_009_900_990_1),
            (100, 1e-3),
            (2999, 1e-3),
        ];
        assert_rates(&of(Schedule::Constant, 1e-4), &expected);
    }

    // transformers' get_linear_schedule_with_warmup(100, 2000); the last with a minimum, by hand.
    #[test]
    fn linear_falls_in_a_line() {
        let expected = [
            (100, 1e-3),
            (101, 0.000_999_473_684_210_526_4),
            (575, 0.000_75),
            (1050, 0.0005),
            (1999, 5.263_157_894_736_842e-7),
        ];
        let config = of(Schedule::Linear, 0.0);
        assert_rates(&config, &expected);
        assert_eq!(learning_rate(&config, 2000), 0.0);
        assert_eq!(learning_rate(&config, 2100), 0.0);
        let expected = [(1050, 5.5e-4), (2000, 1e-4), (2100, 1e-4)];
        assert_rates(&of(Schedule::Linear, 1e-4), &expected);
    }

    // transformers' get_inverse_sqrt_schedule(101) at done + 1.
    #[test]
    fn inverse_sqrt_falls_as_the_root_and_not_below_the_minimum() {
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
        assert_rates(&of(Schedule::InverseSqrt, 0.0), &expected);
        let expected = [(403, 0.0005), (10_099, 1e-4), (39_999, 1e-4)];
        assert_rates(&of(Schedule::InverseSqrt, 1e-4), &expected);
    }

    // transformers' get_wsd_schedule(100, num_decay_steps=400, num_stable_steps=1500, decay_type="linear",
    // min_lr_ratio=0.1) from the warm-up's end on.
    #[test]
    fn warmup_stable_decay_cools_down_at_the_end() {
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
        assert_rates(&of(Schedule::WarmupStableDecay, 1e-4), &expected);
        // A cooldown that would begin at 40 begins at 100, where the warm-up ends.
        let long = TrainConfig {
            cooldown_steps: 1960,
            ..of(Schedule::WarmupStableDecay, 0.0)
        };
        assert_rates(
            &long,
            &[(99, 1e-3 * 100.0 / 101.0), (100, 1e-3), (1050, 5e-4)],
        );
    }
}
