//! A plot axis: limits, ticks and tick labels.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::legend::middle_cut;

/// Number of characters that fit along an axis.
const CATEGORIES: usize = 90;

/// An axis from `from` to `to`. On a logarithmic axis, both are base-10 exponents.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The lower limit, in axis coordinates.
    pub from: f64,
    /// The upper limit, in axis coordinates.
    pub to: f64,
    /// Tick positions with their labels.
    pub ticks: Vec<(f64, String)>,
    log: bool,
}

impl Axis {
    /// Creates a linear axis with about `ticks` ticks.
    pub fn linear(from: f64, to: f64, ticks: usize) -> Self {
        let (from, to) = widened(from, to);
        Self::with_step(from, to, step(from, to, ticks))
    }

    /// Creates an axis of counts that starts at 0.
    pub fn counts(to: f64, ticks: usize) -> Self {
        Self::with_step(0.0, to, step(0.0, to, ticks).max(1.0))
    }

    fn with_step(from: f64, to: f64, step: f64) -> Self {
        let most = from.abs().max(to.abs());
        let marks = marks(from, to, step).into_iter();
        Self {
            from,
            to,
            ticks: marks.map(|mark| (mark, label(mark, step, most))).collect(),
            log: false,
        }
    }

    /// Creates a logarithmic axis. Both limits must be above 0.
    pub fn logarithmic(from: f64, to: f64, ticks: usize) -> Self {
        let (from, to) = if from < to {
            (from, to)
        } else {
            (from / 2.0, to * 2.0)
        };
        let marks = log_marks(from, to, ticks);
        Self {
            from: from.log10(),
            to: to.log10(),
            ticks: marks
                .into_iter()
                .map(|mark| (mark.log10(), significant(mark)))
                .collect(),
            log: true,
        }
    }

    /// Creates an axis of texts, at the positions 0, 1, ….
    pub fn categories(labels: &[String]) -> Self {
        let each = CATEGORIES / labels.len().max(1);
        let tick =
            |(place, label): (usize, &String)| (place as f64, middle_cut(label, each.max(3)));
        Self {
            from: -0.5,
            to: labels.len() as f64 - 0.5,
            ticks: labels.iter().enumerate().map(tick).collect(),
            log: false,
        }
    }

    /// Returns true if the axis does not reach a value.
    pub fn is_outside(&self, value: f64) -> bool {
        let place = self.coordinate(value);
        place.is_some_and(|place| !(self.from..=self.to).contains(&place))
    }

    /// Converts a value to axis coordinates. Returns `None` if it is not finite.
    pub fn coordinate(&self, value: f64) -> Option<f64> {
        let place = if self.log { value.log10() } else { value };
        place.is_finite().then_some(place)
    }

    /// The label of the tick at `place`.
    fn label(&self, place: f64) -> String {
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (self.to - self.from);
        let found = self.ticks.iter().find(|(mark, _)| near(*mark, place));
        found.map(|(_, label)| label.clone()).unwrap_or_default()
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (place - self.from) / (self.to - self.from);
        first + (share * f64::from(last - first)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, _hint: H) -> Vec<f64> {
        self.ticks.iter().map(|(place, _)| *place).collect()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, place: &f64) -> String {
        self.label(*place)
    }
}

/// Widens limits that are equal.
fn widened(from: f64, to: f64) -> (f64, f64) {
    if from < to {
        return (from, to);
    }
    let room = if from == 0.0 { 1.0 } else { from.abs() * 0.1 };
    (from - room, to + room)
}

/// Returns the tick spacing: 1, 2 or 5 times a power of ten.
fn step(from: f64, to: f64, ticks: usize) -> f64 {
    let rough = (to - from) / ticks.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let enough = |step: &f64| *step >= rough * 0.999;
    steps.into_iter().find(enough).unwrap_or(rough)
}

/// Returns the multiples of `step` within the limits.
fn marks(from: f64, to: f64, step: f64) -> Vec<f64> {
    let first = (from / step - 1e-9).ceil() as i64;
    let last = (to / step + 1e-9).floor() as i64;
    (first..=last).map(|n| n as f64 * step).collect()
}

/// Returns ticks at powers of ten, with their multiples if there are few powers. A range with too few of them
/// gets evenly spaced ticks.
fn log_marks(from: f64, to: f64, ticks: usize) -> Vec<f64> {
    let powers = from.log10().floor() as i32..=to.log10().ceil() as i32;
    for multiples in [
        &[1.0][..],
        &[1.0, 3.0],
        &[1.0, 2.0, 5.0],
        &[1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0],
    ] {
        let of = |power: i32| multiples.iter().map(move |m| m * 10f64.powi(power));
        let marks: Vec<f64> = powers
            .clone()
            .flat_map(of)
            .filter(|&mark| from <= mark * 1.000_001 && mark <= to * 1.000_001)
            .collect();
        if marks.len() * 2 > ticks {
            // With many decades, keeps every second, third, … tick.
            let every = marks.len().div_ceil(2 * ticks);
            return marks.into_iter().step_by(every).collect();
        }
    }
    marks(from, to, step(from, to, ticks))
}

/// Formats a tick label. Ticks are `step` apart, and no tick exceeds `most`.
fn label(mark: f64, step: f64, most: f64) -> String {
    if mark == 0.0 {
        return "0".to_owned();
    }
    if !(0.01..1e13).contains(&most) {
        return significant(mark);
    }
    let (unit, name) = match most {
        1e9.. => (1e9, "B"),
        1e6.. => (1e6, "M"),
        1e4.. => (1e3, "k"),
        _ => (1.0, ""),
    };
    let decimals = (-(step / unit).log10() - 1e-9).ceil().max(0.0) as usize;
    format!("{:.decimals$}{name}", mark / unit)
}

/// Formats a number with at most three significant digits: `0.02`, `3e-4`, `20k`.
pub fn significant(value: f64) -> String {
    let rounded = format!("{value:.2e}");
    let Some((digits, power)) = rounded.split_once('e') else {
        return rounded;
    };
    let digits = match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    };
    let number: f64 = format!("{digits}e{power}").parse().unwrap_or(value);
    match value.abs() {
        0.001..1e4 => number.to_string(),
        1e4..1e13 => short(number),
        _ => format!("{digits}e{power}"),
    }
}

/// Formats a positive number in at most five characters: `950`, `12.3k`, `2.05M`.
pub fn short(value: f64) -> String {
    let mut units = ["", "k", "M", "B", "T"].into_iter();
    let mut scaled = value;
    let mut unit = units.next().unwrap_or_default();
    while scaled >= 999.5 {
        let Some(next) = units.next() else { break };
        scaled /= 1000.0;
        unit = next;
    }
    if unit.is_empty() {
        return format!("{scaled:.0}");
    }
    let decimals = match scaled {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    let digits = format!("{scaled:.decimals$}");
    let digits = match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => &digits,
    };
    format!("{digits}{unit}")
}

/// Returns the least and the greatest finite value.
pub fn ends(values: &[f64]) -> Option<(f64, f64)> {
    let numbers = values.iter().copied().filter(|value| value.is_finite());
    numbers.fold(None, |ends, value| match ends {
        None => Some((value, value)),
        Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        let axis = Axis::linear(0.0, 1000.0, 5);
        assert_eq!(labels(&axis), ["0", "200", "400", "600", "800", "1000"]);
        let axis = Axis::linear(0.113, 2.3, 5);
        assert_eq!(labels(&axis), ["0.5", "1.0", "1.5", "2.0"]);
        let axis = Axis::linear(0.0, 600_000.0, 6);
        assert_eq!(
            labels(&axis),
            ["0", "100k", "200k", "300k", "400k", "500k", "600k"]
        );
        let axis = Axis::linear(0.0, 0.001, 4);
        assert_eq!(labels(&axis), ["0", "5e-4", "0.001"]);
        let axis = Axis::linear(0.0, 2.5e15, 3);
        assert_eq!(labels(&axis), ["0", "1e15", "2e15"]);
        let axis = Axis::linear(0.0, 2_048_000.0, 4);
        assert_eq!(labels(&axis), ["0", "1M", "2M"]);
        assert_eq!(labels(&Axis::counts(1.02, 8)), ["0", "1"]);
        assert_eq!(labels(&Axis::counts(3.06, 8)), ["0", "1", "2", "3"]);
    }

    #[test]
    fn texts_are_at_whole_positions() {
        let axis = Axis::categories(&["adamw".to_owned(), "lion".to_owned()]);
        assert_eq!((axis.from, axis.to), (-0.5, 1.5));
        assert_eq!(axis.ticks[1], (1.0, "lion".to_owned()));
    }

    #[test]
    fn logarithmic_ticks_suit_their_range() {
        assert_eq!(
            labels(&Axis::logarithmic(1.0, 1e6, 5)),
            ["1", "10", "100", "1000", "10k", "100k", "1M"]
        );
        assert_eq!(
            labels(&Axis::logarithmic(0.1, 5.0, 6)),
            ["0.1", "0.3", "1", "3"]
        );
        let narrow = Axis::logarithmic(2.0, 2.5, 5);
        assert_eq!(labels(&narrow), ["2", "2.1", "2.2", "2.3", "2.4", "2.5"]);
    }

    #[test]
    fn equal_limits_are_widened() {
        for value in [0.0, 3.0, -2.0, 1e-5] {
            let axis = Axis::linear(value, value, 5);
            assert!(axis.from < value && value < axis.to, "{axis:?}");
            assert!(axis.ticks.len() > 1, "{axis:?}");
        }
        let axis = Axis::logarithmic(3.0, 3.0, 5);
        assert!(axis.from < 3f64.log10() && 3f64.log10() < axis.to);
        assert_eq!(axis.coordinate(0.0), None);
        assert_eq!(axis.coordinate(f64::NAN), None);
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.4, 7.0, 950.0, 999.6, 12_345.0, 2_048_000.0, 1e12].map(short);
        assert_eq!(texts, ["0", "7", "950", "1k", "12.3k", "2.05M", "1T"]);
    }
}
