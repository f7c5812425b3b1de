//! The largest sizes that a configuration may have, whatever the kind of model.

use std::ops::RangeInclusive;

use crate::error::ConfigError;

/// Larger than any published model, and small enough that products of sizes do not overflow.
pub(crate) const LARGEST_SIZE: usize = 1 << 24;

/// Hundreds of times the most of any published model. Some work is done for each block before its weights are read.
pub(crate) const MOST_LAYERS: usize = 1 << 16;

/// Checks that `value` is in `range`.
///
/// # Errors
///
/// A [`ConfigError`] with the field, the value and the range.
pub(crate) fn within(
    field: &'static str,
    value: usize,
    range: RangeInclusive<usize>,
) -> Result<(), ConfigError> {
    if range.contains(&value) {
        return Ok(());
    }
    let rule = format!("must be between {} and {}", range.start(), range.end());
    Err(ConfigError::new(field, value, rule))
}

/// Checks that a number is above 0 and in the range of f32, in which models compute.
pub(crate) fn positive(field: &'static str, value: f64) -> Result<(), ConfigError> {
    if !(value.is_finite() && value > 0.0) {
        return Err(ConfigError::new(field, value, "must be above 0 and finite"));
    }
    match is_in_f32(value) {
        true => Ok(()),
        false => Err(ConfigError::new(field, format!("{value:e}"), F32_RULE)),
    }
}

/// The rule of [`is_in_f32`].
pub(crate) const F32_RULE: &str = "must be between 1.2e-38 and 3.4e38, the range of f32";

/// Returns true if a number keeps its value in f32 up to rounding: it is neither too large nor too close to 0.
pub(crate) fn is_in_f32(value: f64) -> bool {
    let magnitude = value.abs();
    (f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX)).contains(&magnitude)
}
