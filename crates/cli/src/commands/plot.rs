//! `emberlm plot`: plots the curves of runs.

mod data;
mod grouping;
mod horizontal;
mod norms;
mod points;
mod selection;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use emberlm_trainer::events::NormKind;
use emberlm_trainer::metrics::built_in;
use indicatif::HumanDuration;

use crate::error::CliError;
use crate::examples;
use crate::output::print;
use crate::plot::{
    AxisOptions, Figure, Group, Legend, NamedRun, Page, Picture, PictureFile, Quantity, short,
};
use crate::run_model::ModelSize;
use crate::values;
use data::PlotFile;
pub use grouping::{CONFIGURATION, grouped};
use horizontal::Horizontal;
use points::Collected;
pub use selection::select;

/// Arguments of `plot`.
#[derive(Debug, Args)]
#[command(after_help = examples::PLOT)]
pub struct PlotArgs {
    /// Runs, or folders of runs, in the order of the legend [default: the running and the newest runs of runs, at most 8]
    #[arg(value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// The picture's file: a page, a vector or a pixel picture; or its data as comma-separated values
    #[arg(long, value_name = PlotFile::VALUE_NAME, value_parser = PlotFile::parse, value_hint = ValueHint::FilePath)]
    pub out: PlotFile,
    /// The horizontal axis: steps, tokens, flops, time or rate (the learning rate); or, with one point per run, parameters or a setting such as train.schedule.learning_rate
    #[arg(long, value_name = "X", value_parser = Horizontal::parse, default_value = "steps")]
    pub x: Horizontal,
    /// The metric of the vertical axis
    #[arg(long, value_name = "METRIC", default_value = "loss", help = metric_help())]
    pub y: String,
    /// Use a logarithmic vertical axis
    #[arg(long = "log-scale", alias = "log")]
    pub log: bool,
    /// Use a logarithmic horizontal axis
    #[arg(long)]
    pub log_x: bool,
    /// Show all values: by default, the vertical axis ends before outliers
    #[arg(long)]
    pub full_range: bool,
    /// Draw the mean and the standard deviation of runs with the same value of a setting, such as train.optimizer.kind; or "configuration" for runs that differ only in the seed
    #[arg(long, value_name = "SETTING")]
    pub group_by: Option<String>,
    /// Draw one point per run, its last value, also over steps, tokens, flops, time or rate
    #[arg(long)]
    pub points: bool,
    /// Draw one point per run, its best value
    #[arg(long)]
    pub best: bool,
    /// Draw a norm of every layer of one run over the steps, as a heat map (recorded by `train --norms-interval`)
    #[arg(long, value_name = "NORM", value_parser = values::norm_parser(),
        conflicts_with_all = ["x", "y", "log", "log_x", "full_range", "group_by", "points", "best"])]
    pub norms: Option<NormKind>,
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
    let mut runs = select(&args.runs)?;
    if let Some(kind) = args.norms {
        return norms::run(&runs, kind, &args.out);
    }
    let count = match runs.len() {
        1 => "1 run".to_owned(),
        count => format!("{count} runs"),
    };
    if args.group_by.is_some() || matches!(args.x, Horizontal::Setting(_)) {
        grouping::read_settings(&mut runs)?;
    }
    if args.x.needs_model() {
        for run in &mut runs {
            run.size = Some(ModelSize::of_run(&run.folder)?);
        }
    }
    let (names, groups) = match &args.group_by {
        Some(by) => grouped(runs, by)?,
        None => (
            "run".to_owned(),
            runs.into_iter().map(Group::single).collect(),
        ),
    };
    let quantity = Quantity::find(&args.y, runs_of(&groups))?;
    let options = AxisOptions {
        log_x: args.log_x,
        log_y: args.log,
        full_range: args.full_range,
    };
    match &args.x {
        Horizontal::Progress(along) if !args.points && !args.best => match &args.out {
            PlotFile::Csv(path) => data::curves(&groups, &names, *along, &quantity).write(path)?,
            PlotFile::Picture(file) => {
                let figure = Figure::new(&groups, &names, *along, &quantity, options)?;
                write(file, &figure, &figure.legend, &groups)?;
            }
        },
        _ => {
            let points = Collected::new(&groups, &names, &quantity, &args)?;
            match &args.out {
                PlotFile::Csv(path) => points.csv().write(path)?,
                PlotFile::Picture(file) => {
                    let scatter = points.plot(&quantity, options)?;
                    write(file, &scatter, &scatter.legend, &groups)?;
                }
            }
        }
    }
    print(&format!("{}: {count}\n", args.out.path().display()))
}

fn runs_of(groups: &[Group]) -> impl Iterator<Item = &NamedRun> + Clone {
    groups.iter().flat_map(|group| &group.runs)
}

/// Writes a picture of runs. A page has a table of them below it.
///
/// # Errors
/// Returns an error if the picture cannot be drawn or the file cannot be written.
pub fn write(
    out: &PictureFile,
    picture: &impl Picture,
    legend: &Legend,
    groups: &[Group],
) -> Result<(), CliError> {
    let page = Page {
        title: &legend.title,
        headings: &HEADINGS,
        rows: &runs_of(groups).map(row).collect::<Vec<_>>(),
    };
    out.write(picture, &page)
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
