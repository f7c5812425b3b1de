//! `emberlm plot`: plots the curves of runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueHint};
use emberlm_trainer::metrics::built_in;
use indicatif::HumanDuration;

use crate::error::{CliError, warn};
use crate::examples;
use crate::output::print;
use crate::plot::{Figure, NamedRun, Page, PictureFile, Quantity, XQuantity, short};
use crate::run_folders::{is_run, names, runs_in};
use crate::run_history::History;

/// Arguments of `plot`.
#[derive(Debug, Args)]
#[command(after_help = examples::PLOT)]
pub struct PlotArgs {
    /// Runs, or folders of runs, in the order of the legend
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// The picture's file: a page, a vector or a pixel picture
    #[arg(long, value_name = PictureFile::VALUE_NAME, value_parser = PictureFile::parse, value_hint = ValueHint::FilePath)]
    pub out: PictureFile,
    /// The horizontal axis
    #[arg(long, value_enum, default_value_t)]
    pub x: XQuantity,
    /// The metric of the vertical axis
    #[arg(long, value_name = "METRIC", default_value = "loss", help = metric_help())]
    pub y: String,
    /// Use a logarithmic vertical axis
    #[arg(long = "log-scale", alias = "log")]
    pub log: bool,
}

fn metric_help() -> String {
    let names: Vec<&str> = built_in()
        .iter()
        .map(|metric| metric.name.as_ref())
        .collect();
    let names = names.join(", ");
    format!("The metric of the vertical axis: {names}, or a metric that a run's hooks add")
}

/// Draws the plot and writes it.
pub fn run(args: PlotArgs) -> Result<(), CliError> {
    let mut runs = Vec::new();
    for run in &args.runs {
        let inner = match run.is_dir() && !is_run(run) {
            true => runs_in(run)?,
            false => Vec::new(),
        };
        match inner.is_empty() {
            true if run.is_dir() && !is_run(run) => return Err(no_runs(run)),
            true => runs.push(run.clone()),
            false => runs.extend(inner),
        }
    }
    let runs: Vec<NamedRun> = runs
        .iter()
        .zip(names(&runs))
        .map(|(run, name)| read(run, name))
        .collect::<Result<_, _>>()?;
    let quantity = Quantity::find(&args.y, &runs)?;
    let figure = Figure::new(&runs, args.x, &quantity, args.log)?;
    let page = Page {
        title: &figure.title,
        headings: &HEADINGS,
        rows: &runs.iter().map(row).collect::<Vec<_>>(),
    };
    args.out.write(&figure, &page)?;
    let count = match runs.len() {
        1 => "1 run".to_owned(),
        count => format!("{count} runs"),
    };
    print(&format!("{}: {count}\n", args.out.path.display()))
}

fn no_runs(folder: &Path) -> CliError {
    let message = format!("{} is not a run and does not contain one", folder.display());
    CliError::new(message)
        .hint("a run is a folder that `emberlm train` created; `emberlm runs DIR` lists runs")
}

fn read(run: &Path, name: String) -> Result<NamedRun, CliError> {
    let history = History::read(run)?;
    history.damage.iter().for_each(|damage| warn(damage));
    if history.steps.is_empty() {
        let message = format!("{} has no logged step yet", run.display());
        return Err(
            CliError::new(message).hint("wait for its first log line, or lower train.log_interval")
        );
    }
    Ok(NamedRun { name, history })
}

/// Column headings of the page's table.
const HEADINGS: [&str; 7] = [
    "run",
    "steps",
    "lowest validation loss",
    "at step",
    "last training loss",
    "tokens",
    "time",
];

fn row(run: &NamedRun) -> Vec<String> {
    let history = &run.history;
    let none = || "–".to_owned();
    let best = history.best();
    let last = history.steps.last();
    let seconds = history.paces.last().map(|pace| pace.seconds);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    vec![
        run.name.clone(),
        history.step().to_string(),
        best.map_or_else(none, |best| format!("{:.4}", best.loss)),
        best.map_or_else(none, |best| best.step.to_string()),
        last.map_or_else(none, |last| format!("{:.4}", last.loss)),
        last.map_or_else(none, |last| short(last.tokens as f64)),
        time.map_or_else(none, |time| HumanDuration(time).to_string()),
    ]
}
