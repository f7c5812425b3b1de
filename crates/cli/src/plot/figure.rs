//! Computes the contents of a plot from run histories: curves, limits and labels.

use clap::ValueEnum;

use super::axis::{Axis, ends, robust_limits, short};
use super::quantity::Quantity;
use super::smooth::outline;
use super::theme::Look;
use crate::error::CliError;
use crate::run_history::{EvaluationPoint, History};

/// The quantity of the horizontal axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum XQuantity {
    /// Steps made
    #[default]
    Steps,
    /// Tokens trained on
    Tokens,
    /// Time of training
    Time,
}

/// A run and its display name.
#[derive(Clone, Debug)]
pub struct NamedRun {
    pub name: String,
    pub history: History,
}

/// A plot of runs.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The heading.
    pub title: String,
    /// A description of the line styles, below the heading.
    pub about: String,
    /// Label of the horizontal axis.
    pub along: String,
    pub x: Axis,
    pub y: Axis,
    pub curves: Vec<Curve>,
    /// The lowest achievable validation loss, converted to the plotted quantity.
    pub floor: Option<f64>,
    /// Column headings of the legend.
    pub headings: [&'static str; 4],
    /// Rows of the legend, one per curve.
    pub rows: Vec<[String; 4]>,
}

/// The curve of one run.
#[derive(Clone, Debug)]
pub struct Curve {
    pub look: Look,
    pub logged: Vec<(f64, f64)>,
    /// Smoothed values, if there are enough points.
    pub smooth: Option<Vec<(f64, f64)>>,
    pub validation: Vec<(f64, f64)>,
    /// Skipped steps with their values. `None` stands for NaN.
    pub skipped: Vec<(f64, Option<f64>)>,
}

impl Figure {
    /// Builds the plot of `runs`.
    ///
    /// # Errors
    /// Returns an error if there is nothing to draw.
    pub fn new(
        runs: &[NamedRun],
        along: XQuantity,
        quantity: &Quantity,
        log: bool,
    ) -> Result<Self, CliError> {
        let scale = Scale::new(along, runs);
        let curves: Vec<Curve> = runs
            .iter()
            .enumerate()
            .map(|(number, run)| Curve::new(number, run, quantity, &scale))
            .collect();
        let validated = runs.iter().any(|run| run.history.best().is_some());
        let floors = runs.iter().filter_map(|run| run.history.floor);
        let floor = floors.reduce(f64::min);
        let floor = floor.and_then(|loss| quantity.of_loss(loss));
        let y = y_axis(&curves, quantity, floor, log)?;
        let xs = curves.iter().flat_map(Curve::points).map(|(x, _)| x);
        let (_, end) = ends(&xs.collect::<Vec<_>>()).unwrap_or((0.0, 0.0));
        let end = if end > 0.0 { 1.02 * end } else { 1.0 };
        Ok(Self {
            title: quantity.label(),
            about: about(&curves),
            along: scale.label,
            x: match along {
                XQuantity::Time => Axis::linear(0.0, end, 8),
                XQuantity::Steps | XQuantity::Tokens => Axis::counts(end, 8),
            },
            y,
            floor,
            headings: headings(validated),
            rows: runs.iter().map(|run| row(run, validated)).collect(),
            curves,
        })
    }
}

/// Converts steps to horizontal coordinates.
struct Scale {
    along: XQuantity,
    unit: f64,
    label: String,
}

impl Scale {
    fn new(along: XQuantity, runs: &[NamedRun]) -> Self {
        let seconds = runs.iter().filter_map(|run| run.history.paces.last());
        let longest = seconds.map(|pace| pace.seconds).fold(0.0, f64::max);
        let (unit, name) = match longest {
            ..180.0 => (1.0, "seconds"),
            ..10_800.0 => (60.0, "minutes"),
            ..259_200.0 => (3600.0, "hours"),
            _ => (86_400.0, "days"),
        };
        let (unit, label) = match along {
            XQuantity::Steps => (1.0, "steps".to_owned()),
            XQuantity::Tokens => (1.0, "tokens trained on".to_owned()),
            XQuantity::Time => (unit, format!("{name} of training")),
        };
        Self { along, unit, label }
    }

    fn coordinate(&self, history: &History, step: usize) -> Option<f64> {
        let place = match self.along {
            XQuantity::Steps => Some(step as f64),
            XQuantity::Tokens => history.tokens_at(step),
            XQuantity::Time => history.seconds_at(step),
        };
        place.map(|place| place / self.unit)
    }
}

impl Curve {
    fn new(number: usize, run: &NamedRun, quantity: &Quantity, scale: &Scale) -> Self {
        let history = &run.history;
        let place = |step: usize| scale.coordinate(history, step);
        let placed = |points: Vec<(usize, f64)>| -> Vec<_> {
            let points = points.into_iter();
            points
                .filter_map(|(step, y)| Some((place(step)?, y)))
                .collect()
        };
        let logged = placed(quantity.points(&history.trained));
        let validation = placed(quantity.points(&history.validated));
        let skipped = quantity.skipped(history).into_iter();
        Self {
            look: Look::of(number),
            smooth: quantity.smoothed(&logged),
            validation,
            skipped: skipped
                .filter_map(|(step, y)| Some((place(step)?, y)))
                .collect(),
            logged: outline(logged),
        }
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.logged.iter().chain(&self.validation).copied()
    }

    /// The values of the main line after the first tenth of the run.
    fn settled(&self) -> Vec<f64> {
        let line = self.smooth.as_ref().unwrap_or(&self.logged);
        let xs: Vec<f64> = self.points().map(|(x, _)| x).collect();
        let begin = ends(&xs).map_or(0.0, |(_, end)| end / 10.0);
        let later = line.iter().chain(&self.validation);
        later.filter(|(x, _)| *x > begin).map(|&(_, y)| y).collect()
    }
}

fn y_axis(
    curves: &[Curve],
    quantity: &Quantity,
    floor: Option<f64>,
    log: bool,
) -> Result<Axis, CliError> {
    let mut all: Vec<f64> = curves.iter().flat_map(Curve::points).map(|p| p.1).collect();
    if !all.iter().any(|value| value.is_finite()) {
        let name = quantity.label().to_lowercase();
        return Err(CliError::new(format!("no finite value to draw: {name}"))
            .hint("choose another metric with --y"));
    }
    all.extend(floor);
    if log {
        all.retain(|value| *value > 0.0);
        let Some((low, high)) = ends(&all) else {
            return Err(
                CliError::new("a logarithmic axis shows only numbers above 0")
                    .hint("leave out --log-scale"),
            );
        };
        let room = (high / low).powf(0.04).max(1.02);
        return Ok(Axis::logarithmic(low / room, high * room, 6));
    }
    if quantity.begins_at_zero() {
        all.push(0.0);
    }
    let mut settled: Vec<f64> = curves.iter().flat_map(Curve::settled).collect();
    if !quantity.has_outliers() {
        settled.clear();
    }
    let (low, high) = robust_limits(&all, &settled).unwrap_or((0.0, 1.0));
    let room = 0.04 * (high - low);
    let low = match low {
        _ if floor == Some(low) => low - 2.0 * room,
        0.0 => low,
        _ => low - room,
    };
    Ok(Axis::linear(low, high + room, 6))
}

/// Describes the line styles in use.
fn about(curves: &[Curve]) -> String {
    let mut parts = Vec::new();
    if curves.iter().any(|curve| !curve.validation.is_empty()) {
        parts.push("thick with markers: validation; thin: training");
    } else {
        parts.push("training");
    }
    if curves.iter().any(|curve| curve.smooth.is_some()) {
        parts.push("smoothed, the logged values faint behind");
    }
    if curves.iter().any(|curve| !curve.skipped.is_empty()) {
        parts.push("crosses: skipped steps");
    }
    parts
        .join("; ")
        .replace("training; smoothed", "training, smoothed")
}

fn headings(validated: bool) -> [&'static str; 4] {
    match validated {
        true => ["run", "validation loss", "lowest", "at step"],
        false => ["run", "training loss", "tokens", "at step"],
    }
}

/// The placeholder of a missing number.
const NONE: &str = "–";

fn row(run: &NamedRun, validated: bool) -> [String; 4] {
    let history = &run.history;
    let figures = if validated {
        let both = history.last_evaluation().zip(history.best());
        both.map(|(last, best)| {
            let loss = |e: EvaluationPoint| match e.loss.is_finite() {
                true => format!("{:.4}", e.loss),
                false => NONE.to_owned(),
            };
            [loss(last), loss(best), best.step.to_string()]
        })
    } else {
        let last = history.steps.last();
        last.map(|last| {
            let loss = format!("{:.4}", last.loss);
            [loss, short(last.tokens as f64), last.step.to_string()]
        })
    };
    let [a, b, c] = figures.unwrap_or_else(|| [NONE; 3].map(str::to_owned));
    [run.name.clone(), a, b, c]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_history::{PacePoint, SkippedStep};
    use emberlm_trainer::events::Event;

    fn run(losses: &[f64]) -> NamedRun {
        let steps = losses.iter().enumerate().map(|(at, &loss)| Event::Step {
            step: 10 * (at + 1),
            tokens: 1000 * (at as u64 + 1),
            learnt: None,
            loss,
            perplexity: Some(loss.exp()),
            gradient_norm: 1.0,
            learning_rate: 1e-3,
            metrics: Default::default(),
        });
        let paces = (1..=losses.len()).map(|at| PacePoint {
            step: 10 * at,
            seconds: 60.0 * at as f64,
            tokens_per_second: 16.0,
        });
        let history = History {
            paces: paces.collect(),
            ..History::of(steps)
        };
        NamedRun {
            name: "run".into(),
            history,
        }
    }

    fn figure(
        runs: &[NamedRun],
        along: XQuantity,
        name: &str,
        log: bool,
    ) -> Result<Figure, CliError> {
        Figure::new(runs, along, &Quantity::find(name, runs)?, log)
    }

    #[test]
    fn the_horizontal_axis_shows_steps_tokens_or_time() {
        let runs = [run(&[3.0, 2.0, 1.0, 0.5])];
        let xs = |along| {
            let figure = figure(&runs, along, "loss", false).expect("curves");
            let xs: Vec<f64> = figure.curves[0].logged.iter().map(|p| p.0).collect();
            (xs, figure.along)
        };
        assert_eq!(xs(XQuantity::Steps).0, [10.0, 20.0, 30.0, 40.0]);
        assert_eq!(xs(XQuantity::Tokens).0, [1000.0, 2000.0, 3000.0, 4000.0]);
        let (minutes, label) = xs(XQuantity::Time);
        assert_eq!(minutes, [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(label, "minutes of training");
    }

    #[test]
    fn perplexity_and_its_floor_are_exponentials_of_the_loss() {
        let mut runs = [run(&[1.0, 0.0])];
        runs[0].history.floor = Some(0.0);
        runs[0].history.evaluations = vec![EvaluationPoint {
            step: 20,
            loss: 2.0,
        }];
        let readings = vec![(20, 2f64.exp())];
        let validated = &mut runs[0].history.validated;
        validated.insert("perplexity".into(), readings);
        let figure = figure(&runs, XQuantity::Steps, "perplexity", true).expect("curves");
        assert_eq!(figure.floor, Some(1.0));
        assert_eq!(figure.curves[0].validation, [(20.0, 2f64.exp())]);
        assert_eq!(figure.curves[0].logged[0].1, 1f64.exp());
        assert_eq!(figure.rows[0], ["run", "2.0000", "2.0000", "20"]);
    }

    #[test]
    fn single_points_and_nan_values_are_handled() {
        for loss in [2.0, 0.0, -1.0] {
            let figure = figure(&[run(&[loss])], XQuantity::Steps, "loss", false);
            assert!(figure.is_ok(), "{loss}");
        }
        let nothing = [run(&[f64::NAN])];
        assert!(figure(&nothing, XQuantity::Steps, "loss", false).is_err());
        assert!(figure(&[run(&[-1.0])], XQuantity::Steps, "loss", true).is_err());
        let mut with_skipped = run(&[2.0, f64::NAN, 1.0]);
        with_skipped.history.skipped = vec![SkippedStep {
            step: 20,
            loss: None,
            gradient_norm: None,
        }];
        let figure = figure(&[with_skipped], XQuantity::Steps, "loss", false);
        let figure = figure.expect("curves");
        assert_eq!(figure.curves[0].skipped, [(20.0, None)]);
        assert!(figure.about.contains("skipped"), "{}", figure.about);
    }
}
