//! The runs that laws are fitted to: those of a study, or the rows of a file.

use std::path::{Path, PathBuf};

use clap::Args;
use emberlm_system::read::read_argument;

use super::laws::{LawError, Laws, Point};
use crate::error::CliError;
use crate::run_folders::{missing, runs_in};
use crate::run_history::{History, Status};
use crate::run_model::ModelSize;
use crate::shell::shell_path;
use crate::{console, values};

/// The arguments that select and fit runs.
#[derive(Debug, Args)]
pub struct SourceArgs {
    /// The folder of the study
    #[arg(value_name = "DIR", required_unless_present = "losses")]
    pub dir: Option<PathBuf>,
    /// Fit the rows of a CSV file instead, with the columns parameters, tokens, loss and, if not 6 · parameters · tokens, flops
    #[arg(long, value_name = "FILE.csv", conflicts_with = "dir")]
    pub losses: Option<PathBuf>,
    /// Fix the irreducible loss, in nats per token
    #[arg(long, value_name = "LOSS", value_parser = values::not_negative)]
    pub irreducible: Option<f64>,
    /// Number of resamples of the 95% intervals; 0 for none
    #[arg(long, value_name = "N", default_value = "500", value_parser = values::resamples)]
    pub resamples: usize,
    /// The seed of the resamples
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Runs as points.
pub struct Source {
    pub points: Vec<Point>,
    /// The lowest loss that any model can reach on the data, if it is known.
    pub floor: Option<f64>,
}

impl SourceArgs {
    /// Reads the runs.
    ///
    /// # Errors
    /// Returns an error if they cannot be read, or none is finished.
    pub fn read(&self) -> Result<Source, CliError> {
        match (&self.losses, &self.dir) {
            (Some(file), _) => Ok(Source {
                points: of_file(file)?,
                floor: None,
            }),
            (None, Some(dir)) => of_study(dir),
            (None, None) => Err(CliError::usage("give a folder or --losses")),
        }
    }

    /// Fits the laws.
    ///
    /// # Errors
    /// Returns an error if no law can be fitted.
    pub fn fit(&self, points: &[Point]) -> Result<Laws, CliError> {
        let laws = Laws::fit(points, self.irreducible, self.resamples, self.seed);
        match &laws.parametric {
            Err(error @ LawError::Irreducible { .. }) => Err(CliError::usage(error.to_string())),
            Err(error) if laws.optimal.is_none() => {
                let plan = "emberlm scale plan --sizes 5 --budgets 4";
                Err(CliError::new(error.to_string()).hint(format!(
                    "train more sizes per budget, and more budgets: {plan}"
                )))
            }
            _ => Ok(laws),
        }
    }
}

/// The finished runs of a study.
fn of_study(dir: &Path) -> Result<Source, CliError> {
    if !dir.exists() {
        return Err(missing(dir));
    }
    let runs = runs_in(dir)?;
    let (mut points, mut floor) = (Vec::new(), None);
    for run in &runs {
        let Ok(history) = History::read(run) else {
            continue;
        };
        floor = floor.or(history.floor);
        if history.status(run) == Status::Finished {
            points.push(point(run, &history)?);
        }
    }
    let dir = shell_path(dir);
    if points.is_empty() {
        return Err(
            CliError::new(format!("{dir} has no finished run")).hint(format!(
                "train the runs of the study: emberlm scale run {dir}"
            )),
        );
    }
    if points.len() < runs.len() {
        console::note(format_args!(
            "{} of {} runs are finished; `emberlm scale run {dir}` continues",
            points.len(),
            runs.len()
        ));
    }
    Ok(Source { points, floor })
}

/// A finished run as a point, with its last validation loss.
///
/// # Errors
/// Returns an error if the run's files cannot be read, or it has no validation loss.
pub fn point(run: &Path, history: &History) -> Result<Point, CliError> {
    let size = ModelSize::of_run(run)?;
    let logged = history.steps.last().filter(|step| step.step > 0);
    let (loss, logged) = history.last_evaluation().zip(logged).ok_or_else(|| {
        CliError::new(format!("{} has no validation loss", run.display())).hint(
            "a dataset with a validation split is necessary: emberlm prepare --val-fraction 0.1",
        )
    })?;
    let tokens = logged.tokens as f64 / logged.step as f64 * history.step() as f64;
    let point = Point {
        parameters: size.parameters,
        tokens,
        flops: size.flops_per_token * tokens,
        loss: loss.loss,
    };
    let within =
        |error: LawError| CliError::new(error.to_string()).within(&run.display().to_string());
    point.checked().map_err(within)
}

/// The rows of a CSV file.
fn of_file(path: &Path) -> Result<Vec<Point>, CliError> {
    let text = read_argument(path).map_err(CliError::io("read", path))?;
    parse(&text).map_err(|error| error.within(&path.display().to_string()))
}

fn parse(text: &str) -> Result<Vec<Point>, CliError> {
    let cells = |line: &str| -> Vec<String> {
        let cells = line.split(',');
        cells
            .map(|cell| cell.trim().trim_matches('"').to_owned())
            .collect()
    };
    let mut lines = (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty());
    let headings = lines
        .next()
        .map(|(_, line)| cells(line))
        .unwrap_or_default();
    let column = |name: &str| headings.iter().position(|heading| heading == name);
    let required = |name: &str| {
        column(name).ok_or_else(|| {
            CliError::usage(format!(
                "the first line must have the column {name} (got {})",
                headings.join(",")
            ))
            .hint("the columns are parameters, tokens, loss and optionally flops")
        })
    };
    let columns = [
        required("parameters")?,
        required("tokens")?,
        required("loss")?,
    ];
    let flops = column("flops");
    let mut points = Vec::new();
    for (number, line) in lines {
        let cells = cells(line);
        let value = |name: &str, at: usize| -> Result<f64, CliError> {
            let text = cells.get(at).map_or("", String::as_str);
            text.parse().map_err(|_| {
                CliError::usage(format!(
                    "line {number}: `{name}` must be a number (got {text:?})"
                ))
            })
        };
        let parameters = value("parameters", columns[0])?;
        let tokens = value("tokens", columns[1])?;
        let point = Point {
            parameters,
            tokens,
            flops: flops.map_or(Ok(6.0 * parameters * tokens), |at| value("flops", at))?,
            loss: value("loss", columns[2])?,
        };
        let named = |error| CliError::usage(format!("line {number}: {error}"));
        points.push(point.checked().map_err(named)?);
    }
    Ok(points)
}
