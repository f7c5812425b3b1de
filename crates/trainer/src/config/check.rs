//! Validation of settings.

use crate::error::TrainError;

/// The valid range of a number. All numbers other than 0 must have a value in f32, in which training computes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Range {
    NotNegative,
    Positive,
    Share,
}

/// The rule of numbers that are 0 or infinite in f32.
pub(super) const F32_RULE: &str = "must be between 1.2e-38 and 3.4e38, the range of f32";

impl Range {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::NotNegative => value.is_finite() && value >= 0.0,
            Self::Positive => value.is_finite() && value > 0.0,
            Self::Share => (0.0..1.0).contains(&value),
        }
    }

    fn rule(self) -> &'static str {
        match self {
            Self::NotNegative => "must be 0 or above, and finite",
            Self::Positive => "must be above 0 and finite",
            Self::Share => "must be at least 0 and below 1",
        }
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

/// A number with an exponent if it would have many digits without.
fn shown(value: f64) -> String {
    let magnitude = value.abs();
    match value == 0.0 || !value.is_finite() || (1e-6..1e16).contains(&magnitude) {
        true => value.to_string(),
        false => format!("{value:e}"),
    }
}

/// Checks numbers of one table.
///
/// # Errors
/// Returns the first number outside its range.
pub(super) fn check_all(
    table: &'static str,
    values: &[(&'static str, f64, Range)],
) -> Result<(), TrainError> {
    values.iter().try_for_each(|&(field, value, range)| {
        let shown = shown(value);
        require(table, field, &shown, range.holds(value), range.rule())?;
        require(table, field, &shown, is_in_f32(value), F32_RULE)
    })
}

/// Checks that a count of `table` is between `least` and `most`.
///
/// # Errors
/// It is not.
pub(super) fn check_count(
    table: &'static str,
    field: &'static str,
    value: usize,
    least: usize,
    most: usize,
) -> Result<(), TrainError> {
    let rule = format!("must be at least {least}");
    require(table, field, value, value >= least, &rule)?;
    let rule = format!("must be at most {most}");
    require(table, field, value, value <= most, &rule)
}

/// Checks that a step has at most [`MOST_STEP_SEQUENCES`] sequences. `micro_batch` is at least 1.
///
/// # Errors
/// It has more.
pub(super) fn check_step_sequences(
    micro_batch: usize,
    accumulation: usize,
) -> Result<(), TrainError> {
    let most = MOST_STEP_SEQUENCES / micro_batch;
    let rule = format!(
        "must be at most {most} with train.micro_batch = {micro_batch}: a step has at most {MOST_STEP_SEQUENCES} sequences"
    );
    let holds = accumulation <= most;
    require("train", "accumulation", accumulation, holds, &rule)
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
