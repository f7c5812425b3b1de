//! A plot with one point per run, or one per mean over seeds.

use super::PlotArgs;
use super::grouping::{
    CONFIGURATION, compare, differs_only_in_seed, find_setting, number, value_text,
};
use super::horizontal::Horizontal;
use crate::error::{CliError, warn};
use crate::plot::{
    AxisOptions, Group, Labels, Mean, NamedRun, Point, Position, Quantity, Reading, Scale, Scatter,
    Series,
};

/// Builds the plot of the runs' last or best values.
///
/// # Errors
/// Returns an error if the quantity of the horizontal axis or the metric is missing.
pub fn scatter(
    groups: &[Group],
    names: &str,
    quantity: &Quantity,
    args: &PlotArgs,
    options: AxisOptions,
) -> Result<Scatter, CliError> {
    let runs: Vec<&NamedRun> = groups.iter().flat_map(|group| &group.runs).collect();
    let reading = Reading::new(quantity, &runs, args.best)?;
    let place = Place::new(&args.x, &runs)?;
    let is_mean = groups.iter().any(|group| group.is_mean);
    let series: Vec<Series> = match is_mean && names != CONFIGURATION {
        // Runs and configurations have one colour: their positions distinguish them.
        false => vec![Series {
            name: match runs.len() {
                1 => "1 run".to_owned(),
                count => format!("{count} runs"),
            },
            points: points(&runs, &place, &reading, is_mean),
            is_mean,
        }],
        true => groups
            .iter()
            .map(|group| Series {
                name: group.label(),
                points: points(
                    &group.runs.iter().collect::<Vec<_>>(),
                    &place,
                    &reading,
                    true,
                ),
                is_mean: true,
            })
            .collect(),
    };
    let labels = Labels {
        title: reading.title(),
        names: match is_mean && names != CONFIGURATION {
            true => names.to_owned(),
            false => String::new(),
        },
        along: place.label(),
    };
    Scatter::new(&series, labels, &place.categories, quantity, options)
}

/// The points of some runs: one per run, or one per configuration.
fn points(runs: &[&NamedRun], place: &Place, reading: &Reading, is_mean: bool) -> Vec<Point> {
    let mut sets: Vec<Vec<&NamedRun>> = Vec::new();
    for run in runs {
        let same = |set: &&mut Vec<&NamedRun>| is_mean && differs_only_in_seed(set[0], run);
        match sets.iter_mut().find(same) {
            Some(set) => set.push(run),
            None => sets.push(vec![run]),
        }
    }
    let point = |set: &Vec<&NamedRun>| {
        let values = set.iter().filter_map(|run| {
            let (step, value) = reading.of(&run.history)?;
            Some((place.of(run, step)?, value))
        });
        let (xs, ys): (Vec<Position>, Vec<f64>) = values.unzip();
        Some(Point {
            x: mean_position(xs)?,
            y: Mean::of(&ys)?,
            runs: ys.len(),
        })
    };
    let mut found = Vec::new();
    for set in &sets {
        match point(set) {
            Some(point) if point.y.mean.is_finite() => found.push(point),
            _ => warn(&format!(
                "{} has no point: its value is missing or NaN",
                set[0].name
            )),
        }
    }
    found
}

/// The mean of numbers, or the first text.
fn mean_position(positions: Vec<Position>) -> Option<Position> {
    let numbers = positions.iter().map(|position| match position {
        Position::Number(number) => Some(*number),
        Position::Text(_) => None,
    });
    match numbers.collect::<Option<Vec<f64>>>() {
        Some(numbers) => Some(Position::Number(Mean::of(&numbers)?.mean)),
        None => positions.into_iter().next(),
    }
}

/// Places runs on the horizontal axis.
struct Place {
    source: Source,
    /// The texts of a setting whose values are not all numbers, sorted.
    categories: Vec<String>,
}

enum Source {
    Progress(Scale),
    Parameters,
    Setting(String),
}

impl Place {
    fn new(x: &Horizontal, runs: &[&NamedRun]) -> Result<Self, CliError> {
        let source = match x {
            Horizontal::Progress(quantity) => {
                Source::Progress(Scale::new(*quantity, runs.iter().copied()))
            }
            Horizontal::Parameters => Source::Parameters,
            Horizontal::Setting(name) => Source::Setting(
                find_setting(runs.iter().copied(), name)
                    .map_err(|error| error.hint(Horizontal::HINT))?,
            ),
        };
        let categories = match &source {
            Source::Setting(key) => categories(runs, key),
            Source::Progress(_) | Source::Parameters => Vec::new(),
        };
        Ok(Self { source, categories })
    }

    fn of(&self, run: &NamedRun, step: usize) -> Option<Position> {
        match &self.source {
            Source::Progress(scale) => scale.coordinate(run, step).map(Position::Number),
            Source::Parameters => run.size.map(|size| Position::Number(size.parameters)),
            Source::Setting(key) => Some(match run.settings.get(key).and_then(number) {
                Some(number) if self.categories.is_empty() => Position::Number(number),
                _ => Position::Text(value_text(run.settings.get(key))),
            }),
        }
    }

    fn label(&self) -> String {
        match &self.source {
            Source::Progress(scale) => scale.label.clone(),
            Source::Parameters => "parameters".to_owned(),
            Source::Setting(key) => key.clone(),
        }
    }
}

/// The sorted values of a setting as text. Empty if all of them are numbers.
fn categories(runs: &[&NamedRun], key: &str) -> Vec<String> {
    let mut values: Vec<_> = runs.iter().map(|run| run.settings.get(key)).collect();
    if values.iter().all(|value| value.and_then(number).is_some()) {
        return Vec::new();
    }
    values.sort_by(|a, b| compare(*a, *b));
    let mut texts: Vec<String> = values.into_iter().map(value_text).collect();
    texts.dedup();
    texts
}
