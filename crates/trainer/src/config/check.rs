//! Validation of settings.

use crate::error::TrainError;

/// The valid range of a number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Range {
    NotNegative,
    Positive,
    Share,
}

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

/// Checks numbers of one table.
///
/// # Errors
/// Returns the first number outside its range.
pub(super) fn check_all(
    table: &'static str,
    values: &[(&'static str, f64, Range)],
) -> Result<(), TrainError> {
    values.iter().try_for_each(|&(field, value, range)| {
        require(table, field, value, range.holds(value), range.rule())
    })
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
