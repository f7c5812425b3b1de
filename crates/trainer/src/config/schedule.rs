//! The `[train.schedule]` and `[train.decay_schedule]` tables: the schedules of the learning rate and of the weight decay.

use super::check::{Must, Range, require};
use super::kinds::kinds;
use super::settings::{Settings, settings};
use crate::error::TrainError;

kinds! {
    /// The learning rate schedule of a run with its settings. Each but the exponential one begins with a linear warm-up.
    pub enum ScheduleConfig, ScheduleKind:
        "constant, cosine, linear, inverse_sqrt, warmup_stable_decay or exponential." {
        /// Constant learning rate.
        "constant" => Constant(ConstantConfig),
        /// Cosine decay: half a period.
        "cosine" => Cosine(DecayConfig),
        /// Linear decay.
        "linear" => Linear(DecayConfig),
        /// Decay with the inverse square root of the step (Vaswani et al. 2017), with a lower bound.
        "inverse_sqrt" => InverseSqrt(InverseSqrtConfig),
        /// Constant, then linear decay over the last `cooldown_steps` (Hu et al. 2024).
        "warmup_stable_decay" => WarmupStableDecay(CooldownConfig),
        /// Geometric increase from the first step to the last, for a learning-rate range test (Smith 2017).
        "exponential" => Exponential(ExponentialConfig),
    }
}

settings! {
    /// Settings of the constant schedule.
    pub struct ConstantConfig in "train.schedule" {
        /// The learning rate after warm-up.
        pub learning_rate: f64 = 1e-3, Range::NotNegative;
        /// Steps of linear warm-up.
        pub warmup_steps: usize = 100;
    }

    /// Settings of the cosine and linear schedules.
    pub struct DecayConfig in "train.schedule" {
        /// The learning rate after warm-up.
        pub learning_rate: f64 = 1e-3, Range::NotNegative;
        /// The learning rate at the end of the decay, and after it.
        pub min_learning_rate: f64 = 1e-4, Range::NotNegative;
        /// Steps of linear warm-up.
        pub warmup_steps: usize = 100;
        /// The step at which the decay ends; 0 for the last step.
        pub decay_steps: usize = 0;
    }

    /// Settings of the inverse square root schedule.
    pub struct InverseSqrtConfig in "train.schedule" {
        /// The learning rate after warm-up.
        pub learning_rate: f64 = 1e-3, Range::NotNegative;
        /// The lowest learning rate.
        pub min_learning_rate: f64 = 1e-4, Range::NotNegative;
        /// Steps of linear warm-up, at least 1: the learning rate falls as the root of warmup_steps / step.
        pub warmup_steps: usize = 100, NOT_ZERO;
    }

    /// Settings of the warmup-stable-decay schedule.
    pub struct CooldownConfig in "train.schedule" {
        /// The learning rate after warm-up.
        pub learning_rate: f64 = 1e-3, Range::NotNegative;
        /// The learning rate at the end of the decay, and after it.
        pub min_learning_rate: f64 = 1e-4, Range::NotNegative;
        /// Steps of linear warm-up.
        pub warmup_steps: usize = 100;
        /// The step at which the decay ends; 0 for the last step.
        pub decay_steps: usize = 0;
        /// Number of final steps over which the learning rate falls.
        pub cooldown_steps: usize = 0;
    }
}

settings! {
    /// Settings of the exponential schedule.
    pub struct ExponentialConfig in "train.schedule" {
        /// The learning rate of the last step.
        pub learning_rate: f64 = 1.0, Range::Positive;
        /// The learning rate of the first step.
        pub initial_learning_rate: f64 = 1e-6, Range::Positive;
    }
}

/// The schedule scales with the warm-up's length, which therefore cannot be 0.
const NOT_ZERO: Must<usize> = Must(
    "must be at least 1 with kind = inverse_sqrt, which falls as the root of warmup_steps / step",
    |steps: &usize| *steps >= 1,
);

kinds! {
    /// The schedule of the weight decay: a factor on `train.optimizer.weight_decay`.
    pub enum DecayScheduleConfig, DecayScheduleKind:
        "constant, linear, cosine or learning_rate (the learning rate relative to its peak)." {
        /// Constant weight decay.
        "constant" => Constant(NoSettings),
        /// Linear from 1 to `final_factor` at the end of the run.
        "linear" => Linear(FinalDecayConfig),
        /// Half a period of a cosine from 1 to `final_factor` at the end of the run.
        "cosine" => Cosine(FinalDecayConfig),
        /// The learning rate relative to its peak (Defazio 2025), so the decay of a step falls with its square.
        "learning_rate" => LearningRate(NoSettings),
    }
}

settings! {
    /// The settings of a schedule of the weight decay that has none.
    pub struct NoSettings in "train.decay_schedule" {}

    /// Settings of a schedule of the weight decay with an end.
    pub struct FinalDecayConfig in "train.decay_schedule" {
        /// The factor on the weight decay at the end of the run.
        pub final_factor: f64 = 0.0, Range::NotNegative;
    }
}

impl Default for DecayScheduleConfig {
    fn default() -> Self {
        DecayScheduleKind::Constant.into()
    }
}

impl Default for ScheduleConfig {
    fn default() -> Self {
        ScheduleKind::Cosine.into()
    }
}

impl ScheduleConfig {
    /// The peak learning rate, after warm-up.
    pub fn learning_rate(&self) -> f64 {
        match self {
            Self::Exponential(exponential) => exponential.learning_rate,
            Self::Constant(constant) => constant.learning_rate,
            Self::Cosine(decay) | Self::Linear(decay) => decay.learning_rate,
            Self::InverseSqrt(root) => root.learning_rate,
            Self::WarmupStableDecay(cooldown) => cooldown.learning_rate,
        }
    }

    /// Sets the peak learning rate. The minimum keeps its ratio to the peak.
    pub fn set_learning_rate(&mut self, rate: f64) {
        let (learning_rate, min) = match self {
            Self::Constant(constant) => {
                constant.learning_rate = rate;
                return;
            }
            Self::Cosine(decay) | Self::Linear(decay) => {
                (&mut decay.learning_rate, &mut decay.min_learning_rate)
            }
            Self::InverseSqrt(root) => (&mut root.learning_rate, &mut root.min_learning_rate),
            Self::Exponential(exponential) => (
                &mut exponential.learning_rate,
                &mut exponential.initial_learning_rate,
            ),
            Self::WarmupStableDecay(cooldown) => {
                (&mut cooldown.learning_rate, &mut cooldown.min_learning_rate)
            }
        };
        if *learning_rate > 0.0 {
            *min *= rate / *learning_rate;
        }
        // Rounding must not lift the minimum above the peak.
        *min = min.min(rate);
        *learning_rate = rate;
    }

    /// The minimum learning rate after warm-up.
    pub fn min_learning_rate(&self) -> f64 {
        match self {
            Self::Exponential(exponential) => exponential.initial_learning_rate,
            Self::Constant(constant) => constant.learning_rate,
            Self::Cosine(decay) | Self::Linear(decay) => decay.min_learning_rate,
            Self::InverseSqrt(root) => root.min_learning_rate,
            Self::WarmupStableDecay(cooldown) => cooldown.min_learning_rate,
        }
    }

    /// Steps of linear warm-up.
    pub fn warmup_steps(&self) -> usize {
        match self {
            Self::Constant(constant) => constant.warmup_steps,
            Self::Cosine(decay) | Self::Linear(decay) => decay.warmup_steps,
            Self::InverseSqrt(root) => root.warmup_steps,
            Self::WarmupStableDecay(cooldown) => cooldown.warmup_steps,
            Self::Exponential(_) => 0,
        }
    }

    /// Replaces each number of steps by that of a longer or shorter run.
    pub(crate) fn stretch(&mut self, stretched: impl Fn(usize) -> usize) {
        let steps = match self {
            Self::Constant(constant) => vec![&mut constant.warmup_steps],
            Self::Cosine(decay) | Self::Linear(decay) => {
                vec![&mut decay.warmup_steps, &mut decay.decay_steps]
            }
            Self::InverseSqrt(root) => vec![&mut root.warmup_steps],
            Self::WarmupStableDecay(cooldown) => vec![
                &mut cooldown.warmup_steps,
                &mut cooldown.decay_steps,
                &mut cooldown.cooldown_steps,
            ],
            Self::Exponential(_) => Vec::new(),
        };
        for steps in steps {
            *steps = stretched(*steps);
        }
    }

    /// The step at which the decay of a run of `steps` ends. The schedules without `decay_steps`
    /// last for the whole run.
    pub fn decay_end(&self, steps: usize) -> usize {
        let decay_steps = match self {
            Self::Constant(_) | Self::InverseSqrt(_) | Self::Exponential(_) => 0,
            Self::Cosine(decay) | Self::Linear(decay) => decay.decay_steps,
            Self::WarmupStableDecay(cooldown) => cooldown.decay_steps,
        };
        match decay_steps {
            0 => steps,
            steps => steps,
        }
    }

    /// Checks the settings for a run of `steps`.
    pub(super) fn check(&self, steps: usize) -> Result<(), TrainError> {
        self.check_rules()?;
        let table = DecayConfig::TABLE;
        let (peak, min) = (self.learning_rate(), self.min_learning_rate());
        let rule = format!("must be at most learning_rate = {peak}");
        let of_min = match self {
            Self::Exponential(_) => "initial_learning_rate",
            _ => "min_learning_rate",
        };
        require(table, of_min, min, min <= peak, &rule)?;
        let Self::WarmupStableDecay(CooldownConfig { cooldown_steps, .. }) = self else {
            return Ok(());
        };
        let end = self.decay_end(steps);
        let rule = format!(
            "must be between 1 and {end}, the step where the decay ends, with kind = warmup_stable_decay"
        );
        let holds = (1..=end).contains(cooldown_steps);
        require(table, "cooldown_steps", cooldown_steps, holds, &rule)
    }
}
