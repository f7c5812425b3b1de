//! The curves of a run or of a group of runs.

use super::axis::ends;
use super::group::{Group, NamedRun};
use super::limits::robust_range;
use super::mean::{Mean, mean_curve};
use super::quantity::Quantity;
use super::scale::Scale;
use super::smooth::{self, outline};
use super::theme::Look;
use crate::run_history::Series;

/// Points of a line.
pub type Points = Vec<(f64, f64)>;

/// The curves of one group.
#[derive(Clone, Debug)]
pub struct Curve {
    pub look: Look,
    pub training: Line,
    pub validation: Line,
    /// Skipped steps with their values. `None` stands for NaN.
    pub skipped: Vec<(f64, Option<f64>)>,
}

/// A line with the values that it summarizes.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// The drawn line, smoothed if there are enough points.
    pub points: Points,
    /// The logged values behind a smoothed line.
    pub logged: Points,
    /// The mean plus and minus the standard deviation over the runs: position, low and high.
    pub band: Vec<(f64, f64, f64)>,
}

impl Curve {
    /// The curves of group `number`, from 0.
    pub fn new(number: usize, group: &Group, quantity: &Quantity, scale: &Scale) -> Self {
        let skipped = group.runs.iter().flat_map(|run| {
            let steps = quantity.skipped(&run.history).into_iter();
            steps.filter_map(|(step, y)| Some((scale.coordinate(run, step)?, y)))
        });
        let training = readings(group, quantity, scale, |run| &run.history.trained);
        let validation = readings(group, quantity, scale, |run| &run.history.validated);
        Self {
            look: Look::of(number),
            training: Line::new(group, training, |points| quantity.smoothed(points)),
            validation: Line::new(group, validation, |_| None),
            skipped: skipped.collect(),
        }
    }

    /// The lines.
    pub fn lines(&self) -> [&Line; 2] {
        [&self.training, &self.validation]
    }

    /// The drawn values with their positions, without bands.
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.lines().into_iter().flat_map(Line::values)
    }

    /// True if the curve has a band.
    pub fn has_band(&self) -> bool {
        self.lines().iter().any(|line| !line.band.is_empty())
    }
}

/// The readings of each run by position.
pub fn readings(
    group: &Group,
    quantity: &Quantity,
    scale: &Scale,
    phase: fn(&NamedRun) -> &Series,
) -> Vec<Points> {
    let of = |run: &NamedRun| {
        let points = quantity.points(phase(run)).into_iter();
        let placed = points.filter_map(|(step, y)| Some((scale.coordinate(run, step)?, y)));
        placed.collect()
    };
    group.runs.iter().map(of).collect()
}

impl Line {
    fn new(
        group: &Group,
        mut curves: Vec<Points>,
        smoothed: impl Fn(&[(f64, f64)]) -> Option<Points>,
    ) -> Self {
        match group.is_mean {
            true => Self::mean(&mean_curve(&curves), curves.len(), smoothed),
            false => {
                let logged = curves.pop().unwrap_or_default();
                match smoothed(&logged) {
                    Some(points) => Self {
                        points,
                        logged: outline(logged),
                        band: Vec::new(),
                    },
                    None => Self {
                        points: outline(logged),
                        ..Self::default()
                    },
                }
            }
        }
    }

    /// The line of a mean. If it is smoothed, so is the deviation.
    fn mean(
        means: &[(f64, Mean)],
        runs: usize,
        smoothed: impl Fn(&[(f64, f64)]) -> Option<Points>,
    ) -> Self {
        let line: Points = means.iter().map(|(x, mean)| (*x, mean.mean)).collect();
        let deviations: Points = means.iter().map(|(x, mean)| (*x, mean.deviation)).collect();
        let both = smoothed(&line).zip(smooth::smoothed(&deviations));
        let (points, deviations) =
            both.unwrap_or_else(|| (smooth::averaged(&line), smooth::averaged(&deviations)));
        let edges = |(&(x, y), &(_, deviation)): (&(f64, f64), &(f64, f64))| {
            let deviation = deviation.max(0.0);
            (x, y - deviation, y + deviation)
        };
        let band = match runs {
            ..2 => Vec::new(),
            _ => points.iter().zip(&deviations).map(edges).collect(),
        };
        Self {
            points,
            logged: Vec::new(),
            band,
        }
    }

    /// The drawn values with their positions, without the band.
    fn values(&self) -> impl Iterator<Item = (f64, f64)> {
        self.points.iter().chain(&self.logged).copied()
    }

    /// The range of the values and the band, or with `full` of all of them. Without `full`, outliers are left out, and so is
    /// the band where the line is an outlier.
    pub fn range(&self, full: bool) -> Option<(f64, f64)> {
        let within = |values: &[f64]| match full {
            true => ends(values),
            false => robust_range(values),
        };
        let (low, high) = within(&self.values().map(|(_, y)| y).collect::<Vec<_>>())?;
        let visible = self.band.iter().zip(&self.points);
        let visible = visible.filter(|(_, (_, y))| (low..=high).contains(y));
        let (lows, highs): (Vec<f64>, Vec<f64>) = visible.map(|(band, _)| (band.1, band.2)).unzip();
        let low = within(&lows).map_or(low, |(below, _)| low.min(below));
        let high = within(&highs).map_or(high, |(_, above)| high.max(above));
        Some((low, high))
    }
}
