//! The smaller tables of `[train]`: precision, loss, skipped steps, evaluation and checkpoints.

use std::path::PathBuf;

use emberlm_kernels::Precision;

use super::check::{MOST_SEQUENCES, Must, Range, require};
use super::kinds::kinds;
use super::settings::{Settings, settings};
use crate::error::TrainError;

settings! {
    /// Precision of the matrix products.
    pub struct PrecisionConfig in "train.precision" {
        /// Precision of the inputs of matrix products: f32, or bf16 or f16 if the backend supports it. Weights and sums
        /// stay f32.
        pub products: Precision = Precision::F32;
        /// Loss scale, for gradients too small for f16; the update divides by it. 0 adapts the scale in f16 and uses none
        /// otherwise.
        pub loss_scale: f64 = 0.0, Range::NotNegative;
    }

    /// The terms that training adds to the cross-entropy.
    pub struct LossConfig in "train.loss" {
        /// Probability mass that is moved from each target to a uniform distribution over all tokens.
        pub label_smoothing: f64 = 0.0, Range::Share;
        /// Weight of the squared log of the softmax's denominator (1e-4 in PaLM); 0 for none.
        pub z_loss: f64 = 0.0, Range::NotNegative;
    }
}

kinds! {
    /// The rule that decides which steps are skipped.
    pub enum SkipConfig, SkipKind:
        "non_finite (NaN and infinite losses or gradients) or outliers (also those far above the mean)." {
        /// Skips steps with a NaN or infinite loss or gradient norm.
        "non_finite" => NonFinite(NonFiniteConfig),
        /// Also skips steps whose loss or gradient norm is far above the mean. Reads every step, which synchronizes a GPU.
        "outliers" => Outliers(OutliersConfig),
    }
}

settings! {
    /// Settings of [`SkipConfig::NonFinite`].
    pub struct NonFiniteConfig in "train.skip" {
        /// Number of consecutive skipped steps that ends the run.
        pub limit: usize = 10, 1..=usize::MAX;
    }

    /// Settings of [`SkipConfig::Outliers`].
    pub struct OutliersConfig in "train.skip" {
        // Deviations and window as in OLMo-core.
        /// A loss or gradient norm this many standard deviations above the window's mean is an outlier.
        pub deviations: f64 = 6.0, Range::Positive;
        /// Number of steps in the window of mean and standard deviation.
        pub window: usize = 128, FOR_A_DEVIATION, 2..=MOST_STEPS_OF_WINDOW;
        /// Number of consecutive skipped steps that ends the run.
        pub limit: usize = 10, 1..=usize::MAX;
    }
}

impl Default for SkipConfig {
    fn default() -> Self {
        SkipKind::NonFinite.into()
    }
}

impl SkipConfig {
    /// Consecutive skipped steps that end the run.
    pub fn limit(&self) -> usize {
        match self {
            Self::NonFinite(NonFiniteConfig { limit })
            | Self::Outliers(OutliersConfig { limit, .. }) => *limit,
        }
    }

    /// Sets [`SkipConfig::limit`].
    pub fn set_limit(&mut self, new: usize) {
        match self {
            Self::NonFinite(NonFiniteConfig { limit })
            | Self::Outliers(OutliersConfig { limit, .. }) => *limit = new,
        }
    }
}

/// The upper bound of `window`, whose steps are held in memory and in checkpoints.
const MOST_STEPS_OF_WINDOW: usize = 1 << 20;
/// The rule of `window`.
const FOR_A_DEVIATION: Must<usize> = Must(
    "must be at least 2, for there to be a deviation",
    |window: &usize| *window >= 2,
);
/// The upper bound of a sample's tokens.
const MOST_SAMPLE_TOKENS: usize = 1 << 20;

settings! {
    /// Evaluation during training.
    pub struct EvaluationConfig in "train.evaluation" {
        /// Steps between evaluations.
        pub interval: usize = 250, 1..=usize::MAX;
        /// Validation tokens per evaluation, from the split's beginning; 0 for all.
        pub tokens: u64 = 0;
        /// Sequences per batch of an evaluation.
        pub batch: usize = 16, 1..=MOST_SEQUENCES;
        /// Tokens of the sample generated at each evaluation; 0 for none.
        pub sample_tokens: usize = 120, 0..=MOST_SAMPLE_TOKENS;
        /// Number of consecutive evaluations without a new lowest validation loss that ends the run; 0 never ends it early.
        pub early_stop: usize = 0;
        /// Task files in lm-evaluation-harness's format, which each evaluation also scores. Paths are relative to the working
        /// directory.
        pub tasks: Vec<PathBuf> = Vec::new();
        /// A folder in the format of nanochat's eval_bundle, of which each evaluation also computes CORE; empty for none.
        pub core: PathBuf = PathBuf::new();
        /// Items of each task per evaluation, from its beginning, and of CORE's in nanochat's order; 0 for all.
        pub task_items: usize = 0;
    }
}

impl EvaluationConfig {
    /// The validation tokens per evaluation. `None` for all of them.
    pub(crate) fn token_limit(&self) -> Option<u64> {
        (self.tokens > 0).then_some(self.tokens)
    }

    /// Returns true if a run ends early after `evaluations` consecutive ones without a new lowest validation loss.
    pub fn ends_early(&self, evaluations: usize) -> bool {
        self.early_stop > 0 && evaluations >= self.early_stop
    }

    /// Checks the settings against the number of validation tokens.
    ///
    /// # Errors
    /// The run is to end early by its validation loss, and there is no token to validate on.
    pub(crate) fn check_validation(&self, tokens: u64) -> Result<(), TrainError> {
        let rule = "must be 0 without validation data, whose loss decides when to stop";
        let holds = self.early_stop == 0 || tokens > 0;
        require(Self::TABLE, "early_stop", self.early_stop, holds, rule)?;
        let rule = "must be empty without validation data, which is evaluated with it";
        match self.task_setting().filter(|_| tokens == 0) {
            Some((field, value)) => require(Self::TABLE, field, value, false, rule),
            None => Ok(()),
        }
    }

    /// The setting of tasks to score, with its value, if there are any.
    pub(crate) fn task_setting(&self) -> Option<(&'static str, String)> {
        if !self.tasks.is_empty() {
            return Some(("tasks", format!("{:?}", self.tasks)));
        }
        let core = self.core.display().to_string();
        (!core.is_empty()).then_some(("core", core))
    }
}

settings! {
    /// Checkpoints of a run.
    pub struct CheckpointConfig in "train.checkpoints" {
        /// Steps between checkpoints; the end of the run also writes one.
        pub interval: usize = 1000, 1..=usize::MAX;
        /// Also write a checkpoint after each evaluation, which the next checkpoint replaces.
        pub at_evaluations: bool = true;
        /// Also write a checkpoint at a line of the log if there was none for so many minutes, or for one minute since the start, which the next checkpoint replaces; 0 for none.
        pub minutes: u64 = 10;
        /// The number of newest checkpoints to keep; 0 for all.
        pub keep_last: usize = 0;
        /// Also keep the checkpoint with the lowest validation loss, and write one at each new minimum.
        pub keep_best: bool = false;
    }
}
