//! The axes of plots of curves and of points.

use super::axis::{Axis, ends};
use super::quantity::Quantity;
use crate::error::CliError;

/// The options of a plot's axes.
#[derive(Clone, Copy, Debug, Default)]
pub struct AxisOptions {
    /// Makes the horizontal axis logarithmic.
    pub log_x: bool,
    /// Makes the vertical axis logarithmic.
    pub log_y: bool,
    /// Shows all values, outliers included.
    pub full_range: bool,
}

impl AxisOptions {
    /// True if the vertical axis shows all values of a metric.
    pub fn is_full(self, quantity: &Quantity) -> bool {
        self.full_range || !quantity.has_outliers()
    }
}

/// Creates a logarithmic axis of the values above 0. At each end of `room`, it is longer than the values by this share.
///
/// # Errors
/// Returns an error if no value is above 0.
pub fn log_axis(
    values: &[f64],
    room: (f64, f64),
    ticks: usize,
    option: &str,
) -> Result<Axis, CliError> {
    let positive: Vec<f64> = values
        .iter()
        .copied()
        .filter(|value| *value > 0.0)
        .collect();
    let Some((low, high)) = ends(&positive) else {
        return Err(
            CliError::new("a logarithmic axis shows only numbers above 0")
                .hint(format!("leave out {option}")),
        );
    };
    let wide = |share: f64| (high / low).powf(share).max(1.0 + share / 2.0);
    Ok(Axis::logarithmic(
        low / wide(room.0),
        high * wide(room.1),
        ticks,
    ))
}

/// Creates the vertical axis of `values`. A linear one shows the `ranges` and the lowest achievable value, `floor`.
///
/// # Errors
/// Returns an error if no value can be drawn.
pub fn y_axis(
    mut values: Vec<f64>,
    ranges: impl IntoIterator<Item = (f64, f64)>,
    quantity: &Quantity,
    floor: Option<f64>,
    options: AxisOptions,
) -> Result<Axis, CliError> {
    if !values.iter().any(|value| value.is_finite()) {
        let name = quantity.label().to_lowercase();
        return Err(CliError::new(format!("no finite value to draw: {name}"))
            .hint("choose another metric with --y"));
    }
    if options.log_y {
        values.extend(floor);
        return log_axis(&values, (0.04, 0.04), 6, "--log-scale");
    }
    let ranges = ranges.into_iter();
    let mut limits: Vec<f64> = ranges.flat_map(|(low, high)| [low, high]).collect();
    limits.extend(floor);
    if quantity.begins_at_zero() {
        limits.push(0.0);
    }
    let (low, high) = ends(&limits).unwrap_or((0.0, 1.0));
    let room = 0.04 * (high - low);
    let low = match low {
        _ if floor == Some(low) => low - 2.0 * room,
        0.0 => low,
        _ => low - room,
    };
    Ok(Axis::linear(low, high + room, 6))
}
