//! A plot with one point per run, or one per mean over seeds.

use super::PlotArgs;
use super::data::{self, PlotFile};
use super::grouping::{
    CONFIGURATION, compare, differs_only_in_seed, find_setting, number, value_text,
};
use super::horizontal::Horizontal;
use crate::csv::Csv;
use crate::error::{CliError, warn};
use crate::plot::{
    AxisOptions, Group, Labels, Mean, NamedRun, Point, Position, Quantity, Reading, Scale, Scatter,
    Series,
};

/// Points, and what they show.
pub struct Collected {
    series: Vec<Series>,
    labels: Labels,
    categories: Vec<String>,
    /// The heading of a column of the names.
    names: String,
    /// The heading of a column of the values.
    value: String,
}

impl Collected {
    /// Collects the last or best values of runs.
    ///
    /// # Errors
    /// Returns an error if the quantity of the horizontal axis is missing, or the metric has no best value.
    pub fn new(
        groups: &[Group],
        names: &str,
        quantity: &Quantity,
        args: &PlotArgs,
    ) -> Result<Self, CliError> {
        let runs: Vec<&NamedRun> = groups.iter().flat_map(|group| &group.runs).collect();
        let reading = Reading::new(quantity, &runs, args.best)?;
        let in_base_units = matches!(args.out, PlotFile::Csv(_));
        let place = Place::new(&args.x, &runs, in_base_units)?;
        let is_mean = groups.iter().any(|group| group.is_mean);
        let points = |group: &Group| points(group, &place, &reading);
        let series: Vec<Series> = match is_mean && names != CONFIGURATION {
            // Runs and configurations have one colour: their positions distinguish them.
            false => vec![Series {
                name: match runs.len() {
                    1 => "1 run".to_owned(),
                    count => format!("{count} runs"),
                },
                points: groups.iter().flat_map(points).collect(),
                is_mean,
                line: Vec::new(),
            }],
            true => groups
                .iter()
                .map(|group| Series {
                    name: group.label(),
                    points: points(group),
                    is_mean: true,
                    line: Vec::new(),
                })
                .collect(),
        };
        let heading = match is_mean && names != CONFIGURATION {
            true => names,
            false => "",
        };
        Ok(Self {
            series,
            labels: Labels {
                title: reading.title(),
                names: heading.to_owned(),
                along: place.label(),
            },
            names: names.to_owned(),
            value: reading.column(),
            categories: place.categories,
        })
    }

    /// The plot of the points.
    ///
    /// # Errors
    /// Returns an error if there is nothing to draw.
    pub fn plot(self, quantity: &Quantity, options: AxisOptions) -> Result<Scatter, CliError> {
        Scatter::new(
            &self.series,
            self.labels,
            &self.categories,
            quantity,
            options,
        )
    }

    /// The points as comma-separated values.
    pub fn csv(&self) -> Csv {
        data::points(&self.series, &self.names, &self.labels.along, &self.value)
    }
}

/// The points of a group: one per run, or of a mean one per set of runs that differ only in the seed.
fn points(group: &Group, place: &Place, reading: &Reading) -> Vec<Point> {
    let mut sets: Vec<Vec<&NamedRun>> = Vec::new();
    for run in &group.runs {
        let same = |set: &&mut Vec<&NamedRun>| group.is_mean && differs_only_in_seed(set[0], run);
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
            name: group.name.clone(),
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
    fn new(x: &Horizontal, runs: &[&NamedRun], in_base_units: bool) -> Result<Self, CliError> {
        let source = match x {
            Horizontal::Progress(quantity) => Source::Progress(match in_base_units {
                true => Scale::in_base_units(*quantity),
                false => Scale::new(*quantity, runs.iter().copied()),
            }),
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
