//! The rules of settings.

use std::fmt::Debug;
use std::ops::RangeInclusive;

use crate::error::TrainError;

/// A rule for the values of a setting.
pub(super) trait Rule<T> {
    /// The rule in words if `value` violates it.
    fn violated_by(&self, value: &T) -> Option<String>;
}

/// The valid range of a number. All numbers other than 0 must have a value in f32, in which training computes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Range {
    Finite,
    NotNegative,
    Positive,
    Share,
}

/// A rule in its own words, and the condition under which it holds.
pub(super) struct Must<T>(pub &'static str, pub fn(&T) -> bool);

/// The rule of texts that have no default.
pub(super) const NOT_EMPTY: Must<String> =
    Must("must not be empty", |text: &String| !text.is_empty());

/// The rule of numbers that are 0 or infinite in f32.
pub(super) const F32_RULE: &str = "must be between 1.2e-38 and 3.4e38, the range of f32";

impl Range {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::Finite => value.is_finite(),
            Self::NotNegative => value.is_finite() && value >= 0.0,
            Self::Positive => value.is_finite() && value > 0.0,
            Self::Share => (0.0..1.0).contains(&value),
        }
    }

    fn rule(self) -> &'static str {
        match self {
            Self::Finite => "must be finite",
            Self::NotNegative => "must be 0 or above, and finite",
            Self::Positive => "must be above 0 and finite",
            Self::Share => "must be at least 0 and below 1",
        }
    }
}

impl Rule<f64> for Range {
    fn violated_by(&self, value: &f64) -> Option<String> {
        match self.holds(*value) {
            false => Some(self.rule().to_owned()),
            true => (!is_in_f32(*value)).then(|| F32_RULE.to_owned()),
        }
    }
}

/// A number that is not set violates no rule.
impl Rule<Option<f64>> for Range {
    fn violated_by(&self, value: &Option<f64>) -> Option<String> {
        value.and_then(|value| self.violated_by(&value))
    }
}

/// The rule of a count.
impl Rule<usize> for RangeInclusive<usize> {
    fn violated_by(&self, value: &usize) -> Option<String> {
        match (value < self.start(), value > self.end()) {
            (true, _) => Some(format!("must be at least {}", self.start())),
            (_, true) => Some(format!("must be at most {}", self.end())),
            _ => None,
        }
    }
}

impl<T> Rule<T> for Must<T> {
    fn violated_by(&self, value: &T) -> Option<String> {
        let Self(rule, holds) = self;
        (!holds(value)).then(|| (*rule).to_owned())
    }
}

/// A value as an error shows it.
pub(super) trait Shown {
    fn shown(&self) -> String;
}

/// A number with an exponent if it would have many digits without.
impl Shown for f64 {
    fn shown(&self) -> String {
        let magnitude = self.abs();
        match *self == 0.0 || !self.is_finite() || (1e-6..1e16).contains(&magnitude) {
            true => self.to_string(),
            false => format!("{self:e}"),
        }
    }
}

impl Shown for Option<f64> {
    fn shown(&self) -> String {
        self.map_or_else(String::new, |value| value.shown())
    }
}

impl Shown for usize {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Shown for String {
    fn shown(&self) -> String {
        format!("{self:?}")
    }
}

impl<T: Debug> Shown for Vec<T> {
    fn shown(&self) -> String {
        format!("{self:?}")
    }
}

/// Checks that `value` follows `rule`.
///
/// # Errors
/// It does not.
pub(super) fn apply<T: Shown>(
    rule: &impl Rule<T>,
    table: &'static str,
    field: &'static str,
    value: &T,
) -> Result<(), TrainError> {
    match rule.violated_by(value) {
        Some(rule) => require(table, field, value.shown(), false, &rule),
        None => Ok(()),
    }
}

/// The upper bound of `steps`. The sequences of all steps are counted in 64 bits.
pub(super) const MOST_STEPS: usize = 1 << 40;
/// The upper bound of the sequences of a batch, and of the micro-batches of a step, which are held in memory.
pub(super) const MOST_SEQUENCES: usize = 1 << 20;
/// The upper bound of the sequences of a step.
const MOST_STEP_SEQUENCES: usize = 1 << 22;

/// Returns true if a finite number is 0, or keeps its value in f32 up to rounding.
pub(super) fn is_in_f32(value: f64) -> bool {
    let values = f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX);
    value == 0.0 || values.contains(&value.abs())
}

/// Checks that a step has at most [`MOST_STEP_SEQUENCES`] sequences. `micro_batch` is at least 1.
///
/// # Errors
/// It has more.
pub(super) fn check_step_sequences(
    table: &'static str,
    micro_batch: usize,
    accumulation: usize,
) -> Result<(), TrainError> {
    let most = MOST_STEP_SEQUENCES / micro_batch;
    let rule = format!(
        "must be at most {most} with train.micro_batch = {micro_batch}: a step has at most {MOST_STEP_SEQUENCES} sequences"
    );
    let holds = accumulation <= most;
    require(table, "accumulation", accumulation, holds, &rule)
}

/// Returns a [`TrainError::Setting`] with `rule` unless `holds`.
///
/// # Errors
/// `holds` is false.
pub(super) fn require(
    table: &'static str,
    field: &'static str,
    value: impl ToString,
    holds: bool,
    rule: &str,
) -> Result<(), TrainError> {
    if holds {
        return Ok(());
    }
    Err(TrainError::Setting {
        table,
        field,
        value: value.to_string(),
        rule: rule.to_owned(),
    })
}
