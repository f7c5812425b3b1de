//! The smaller tables of `[train]`: precision, loss, skipped steps, evaluation and checkpoints.

use documented::DocumentedFields;
use emberlm_kernels::Precision;
use serde::{Deserialize, Serialize};

use super::check::{MOST_SEQUENCES, Range, check_all, check_count, require};
use crate::error::TrainError;

/// Precision of the matrix products.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct PrecisionConfig {
    /// Precision of the inputs of matrix products: f32, or bf16 or f16 if the backend supports it. Weights and sums
    /// stay f32.
    pub products: Precision,
    /// Loss scale, for gradients too small for f16; the update divides by it. 0 adapts the scale in f16 and uses none
    /// otherwise.
    pub loss_scale: f64,
}

impl Default for PrecisionConfig {
    fn default() -> Self {
        Self {
            products: Precision::F32,
            loss_scale: 0.0,
        }
    }
}

impl PrecisionConfig {
    pub(super) fn check(&self) -> Result<(), TrainError> {
        let loss_scale = ("loss_scale", self.loss_scale, Range::NotNegative);
        check_all("train.precision", &[loss_scale])
    }
}

/// The terms that training adds to the cross-entropy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct LossConfig {
    /// Probability mass that is moved from each target to a uniform distribution over all tokens.
    pub label_smoothing: f64,
    /// Weight of the squared log of the softmax's denominator (1e-4 in PaLM); 0 for none.
    pub z_loss: f64,
}

impl LossConfig {
    pub(super) fn check(&self) -> Result<(), TrainError> {
        check_all(
            "train.loss",
            &[
                ("label_smoothing", self.label_smoothing, Range::Share),
                ("z_loss", self.z_loss, Range::NotNegative),
            ],
        )
    }
}

/// The rule that decides which steps are skipped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SkipConfig {
    /// Skips steps with a NaN or infinite loss or gradient norm.
    NonFinite(NonFiniteConfig),
    /// Also skips steps whose loss or gradient norm is far above the mean. Reads every step, which
    /// synchronizes a GPU.
    Outliers(OutliersConfig),
}

/// Settings of [`SkipConfig::NonFinite`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct NonFiniteConfig {
    /// Number of consecutive skipped steps that ends the run.
    pub limit: usize,
}

/// Settings of [`SkipConfig::Outliers`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct OutliersConfig {
    /// A loss or gradient norm this many standard deviations above the window's mean is an outlier.
    pub deviations: f64,
    /// Number of steps in the window of mean and standard deviation.
    pub window: usize,
    /// Number of consecutive skipped steps that ends the run.
    pub limit: usize,
}

impl Default for NonFiniteConfig {
    fn default() -> Self {
        Self { limit: 10 }
    }
}

/// Deviations and window as in OLMo-core.
impl Default for OutliersConfig {
    fn default() -> Self {
        Self {
            deviations: 6.0,
            window: 128,
            limit: NonFiniteConfig::default().limit,
        }
    }
}

impl Default for SkipConfig {
    fn default() -> Self {
        Self::NonFinite(NonFiniteConfig::default())
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

    pub(super) fn check(&self) -> Result<(), TrainError> {
        let table = "train.skip";
        let limit = self.limit();
        require(table, "limit", limit, limit >= 1, "must be at least 1")?;
        let Self::Outliers(OutliersConfig {
            deviations, window, ..
        }) = self
        else {
            return Ok(());
        };
        check_all(table, &[("deviations", *deviations, Range::Positive)])?;
        let rule = "must be at least 2, for there to be a deviation";
        require(table, "window", window, *window >= 2, rule)?;
        check_count(table, "window", *window, 2, MOST_STEPS_OF_WINDOW)
    }
}

/// The upper bound of `window`, whose steps are held in memory and in checkpoints.
const MOST_STEPS_OF_WINDOW: usize = 1 << 20;
/// The upper bound of a sample's tokens.
const MOST_SAMPLE_TOKENS: usize = 1 << 20;

/// Evaluation during training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluationConfig {
    /// Steps between evaluations.
    pub interval: usize,
    /// Validation tokens per evaluation, from the split's beginning; 0 for all.
    pub tokens: u64,
    /// Sequences per batch of an evaluation.
    pub batch: usize,
    /// Tokens of the sample generated at each evaluation; 0 for none.
    pub sample_tokens: usize,
}

impl Default for EvaluationConfig {
    fn default() -> Self {
        Self {
            interval: 250,
            tokens: 0,
            batch: 16,
            sample_tokens: 120,
        }
    }
}

impl EvaluationConfig {
    /// The validation tokens per evaluation. `None` for all of them.
    pub(crate) fn token_limit(&self) -> Option<u64> {
        (self.tokens > 0).then_some(self.tokens)
    }

    pub(super) fn check(&self) -> Result<(), TrainError> {
        let table = "train.evaluation";
        for (field, value, least, most) in [
            ("interval", self.interval, 1, usize::MAX),
            ("batch", self.batch, 1, MOST_SEQUENCES),
            ("sample_tokens", self.sample_tokens, 0, MOST_SAMPLE_TOKENS),
        ] {
            check_count(table, field, value, least, most)?;
        }
        Ok(())
    }
}

/// Checkpoints of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointConfig {
    /// Steps between checkpoints; the end of the run also writes one.
    pub interval: usize,
    /// Also write a checkpoint after each evaluation, which the next checkpoint replaces.
    pub at_evaluations: bool,
    /// Also write a checkpoint at a line of the log if there was none for so many minutes, or for one minute since the start, which the next checkpoint replaces; 0 for none.
    pub minutes: u64,
    /// The number of newest checkpoints to keep; 0 for all.
    pub keep_last: usize,
    /// Also keep the checkpoint with the lowest validation loss, and write one at each new minimum.
    pub keep_best: bool,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self {
            interval: 1000,
            at_evaluations: true,
            minutes: 10,
            keep_last: 0,
            keep_best: false,
        }
    }
}

impl CheckpointConfig {
    pub(super) fn check(&self) -> Result<(), TrainError> {
        let interval = self.interval;
        let rule = "must be at least 1";
        require(
            "train.checkpoints",
            "interval",
            interval,
            interval >= 1,
            rule,
        )
    }
}
