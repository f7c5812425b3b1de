//! Computes the contents of a plot of points: one per run, or one per mean over seeds.

use emberlm_trainer::metrics::Direction;

use super::axes::{AxisOptions, log_axis, y_axis};
use super::axis::{Axis, ends, significant};
use super::legend::{Legend, LegendRow};
use super::limits::robust_range;
use super::mean::Mean;
use super::quantity::Quantity;
use super::summary::NONE;
use super::theme::Look;
use crate::error::CliError;

/// Quotient of the horizontal values above which their axis is logarithmic.
const WIDE: f64 = 30.0;

/// The horizontal position of a point.
#[derive(Clone, Debug, PartialEq)]
pub enum Position {
    Number(f64),
    /// The value of a setting that is not a number.
    Text(String),
}

/// A point of a plot.
#[derive(Clone, Debug)]
pub struct Point {
    /// The name of the run, or of its group.
    pub name: String,
    pub x: Position,
    /// The value, or the mean of those of several runs.
    pub y: Mean,
    /// The number of runs.
    pub runs: usize,
}

/// Points with a common colour.
#[derive(Clone, Debug)]
pub struct Series {
    pub name: String,
    pub points: Vec<Point>,
    /// True if the points are means over seeds.
    pub is_mean: bool,
    /// A line through or near the points, such as a fit.
    pub line: Vec<(f64, f64)>,
}

/// The texts of a plot of points.
#[derive(Clone, Debug)]
pub struct Labels {
    pub title: String,
    /// The heading of the names in the legend.
    pub names: String,
    /// The horizontal axis.
    pub along: String,
}

/// A plot of points.
#[derive(Clone, Debug)]
pub struct Scatter {
    pub legend: Legend,
    pub along: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<DrawnSeries>,
}

/// Points as they are drawn.
#[derive(Clone, Debug)]
pub struct DrawnSeries {
    pub look: Look,
    /// Position, mean and standard deviation, from left to right.
    pub points: Vec<(f64, Mean)>,
    /// The line of the series: its own, or one that connects the points of means.
    pub line: Vec<(f64, f64)>,
}

impl Scatter {
    /// Builds the plot of points. `categories` are the texts of the horizontal axis, if their values are not all numbers.
    ///
    /// # Errors
    /// Returns an error if there is no point with a finite value.
    pub fn new(
        series: &[Series],
        labels: Labels,
        categories: &[String],
        quantity: &Quantity,
        options: AxisOptions,
    ) -> Result<Self, CliError> {
        let drawn: Vec<DrawnSeries> = series
            .iter()
            .enumerate()
            .map(|(number, series)| DrawnSeries::new(number, series, categories))
            .collect();
        let points = || drawn.iter().flat_map(|series| &series.points);
        let xs: Vec<f64> = points().map(|(x, _)| *x).collect();
        let edges =
            points().flat_map(|(_, y)| [y.mean - y.deviation, y.mean, y.mean + y.deviation]);
        let edges: Vec<f64> = edges.collect();
        let range = match options.is_full(quantity) {
            true => ends(&edges),
            false => robust_range(&edges),
        };
        let y = y_axis(edges, range, quantity, None, options)?;
        let x = match categories {
            [] => x_axis(&xs, options.log_x)?,
            _ if options.log_x => {
                let message = format!("{} has values that are not numbers", labels.along);
                return Err(CliError::usage(message).hint("leave out --log-x"));
            }
            categories => Axis::categories(categories),
        };
        let rows = drawn.iter().zip(series).map(|(drawn, series)| LegendRow {
            look: drawn.look,
            cells: row(series, quantity),
        });
        let headings = [&labels.names, "points", best_heading(quantity), "at"];
        Ok(Self {
            legend: Legend {
                title: labels.title,
                about: about(series, &drawn, &y),
                headings: headings.map(str::to_owned).into(),
                rows: rows.collect(),
            },
            along: labels.along,
            x,
            y,
            series: drawn,
        })
    }
}

impl DrawnSeries {
    fn new(number: usize, series: &Series, categories: &[String]) -> Self {
        let place = |x: &Position| match (x, categories) {
            (Position::Number(x), []) => Some(*x),
            (x, categories) => {
                let text = x.text();
                let number = categories.iter().position(|known| *known == text)?;
                Some(number as f64)
            }
        };
        let points = series.points.iter();
        let mut points: Vec<_> = points
            .filter_map(|point| Some((place(&point.x)?, point.y)))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let distinct = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let connects = series.is_mean && categories.is_empty() && distinct;
        let line = match connects && series.line.is_empty() {
            true => points.iter().map(|(x, value)| (*x, value.mean)).collect(),
            false => series.line.clone(),
        };
        Self {
            look: Look::of(number),
            line,
            points,
        }
    }
}

impl Position {
    /// The position in a legend.
    fn short(&self) -> String {
        match self {
            Self::Number(number) => significant(*number),
            Self::Text(text) => text.clone(),
        }
    }

    /// The position as text.
    pub fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

fn x_axis(xs: &[f64], log: bool) -> Result<Axis, CliError> {
    let (from, to) = ends(xs).unwrap_or((0.0, 1.0));
    if log || (from > 0.0 && to / from > WIDE) {
        return log_axis(xs, (0.05, 0.05), 8, "--log-x");
    }
    let room = 0.05 * (to - from);
    Ok(Axis::linear(from - room, to + room, 8))
}

fn about(series: &[Series], drawn: &[DrawnSeries], y: &Axis) -> String {
    let mut parts = match series.iter().any(|series| series.is_mean) {
        true => vec!["point: mean of runs that differ only in the seed; bar: ± standard deviation"],
        false => vec!["point: run"],
    };
    let mut means = drawn.iter().flat_map(|series| &series.points);
    if means.any(|(_, value)| y.is_outside(value.mean)) {
        parts.push("crosses: values outside");
    }
    parts.join("; ")
}

fn best_heading(quantity: &Quantity) -> &'static str {
    match quantity.direction() {
        Direction::LowerIsBetter => "lowest",
        Direction::HigherIsBetter => "highest",
        Direction::Neutral => "range",
    }
}

/// The legend's row of a series: its name, the number of points, and the best one.
fn row(series: &Series, quantity: &Quantity) -> Vec<String> {
    let finite = || {
        series
            .points
            .iter()
            .filter(|point| point.y.mean.is_finite())
    };
    let by = |a: &&Point, b: &&Point| a.y.mean.total_cmp(&b.y.mean);
    let (low, high) = (finite().min_by(by), finite().max_by(by));
    let shown = |point: &Point| match point.runs {
        1 => quantity.shown(point.y.mean),
        _ => format!(
            "{} ± {}",
            quantity.shown(point.y.mean),
            quantity.shown(point.y.deviation)
        ),
    };
    let best = match quantity.direction() {
        Direction::LowerIsBetter => low,
        Direction::HigherIsBetter => high,
        Direction::Neutral => None,
    };
    let (value, x) = match (best, low, high) {
        (Some(best), ..) => (shown(best), best.x.short()),
        (None, Some(low), Some(high)) => {
            let [low, high] = [low, high].map(|point| quantity.shown(point.y.mean));
            (format!("{low} – {high}"), String::new())
        }
        _ => (NONE.to_owned(), NONE.to_owned()),
    };
    vec![
        series.name.clone(),
        series.points.len().to_string(),
        value,
        x,
    ]
}
