//! `emberlm scale`: scaling laws.
//!
//! | module | contents |
//! |---|---|
//! | `plan`, `base`, `sizes`, `speed` | the runs of a study: budgets, models of any size, predicted time |
//! | `source` | finished runs, or a file of them |
//! | `laws` | the fits, without files and models |
//! | `fit`, `picture` | prints, draws and reports the laws |
//! | `predict` | the best model of a budget |

mod base;
mod fit;
mod laws;
mod picture;
mod plan;
mod predict;
mod sizes;
mod source;
mod speed;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use emberlm_data::formats::FileFormat;

use crate::backend::BackendArg;
use crate::commands::sweep::{self, SweepArgs};
use crate::error::CliError;
use crate::examples;
use crate::output::print;
use crate::shell::shell_path;
use crate::values::at_least_one;

/// The plan in a study's folder.
const STUDY_FILE: &str = "scale.toml";

/// The steps between the evaluations of a run.
const INTERVAL: &str = "train.evaluation.interval";

/// The documentation of the files in a study's folder.
pub fn formats() -> Vec<FileFormat> {
    vec![FileFormat::new(
        STUDY_FILE,
        "the runs of a scaling study, as a sweep file",
    )]
}

/// Arguments of `scale`.
#[derive(Debug, Args)]
#[command(after_help = examples::SCALE)]
pub struct ScaleArgs {
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub command: ScaleCommand,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum ScaleCommand {
    /// Plan runs of several sizes at several budgets within a time
    Plan(plan::PlanArgs),
    /// Train the unfinished runs of a plan
    #[command(after_help = examples::SCALE)]
    Run(RunArgs),
    /// Fit scaling laws to finished runs, or to a file of losses
    Fit(fit::FitArgs),
    /// Predict the best model of a budget and its loss
    Predict(predict::PredictArgs),
}

/// Arguments of `scale run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The folder of the study
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Number of runs trained at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub parallel: usize,
    /// The command that starts the processes of each run, such as "srun -n 4" or "mpirun -n 4" [default: one process]
    #[arg(long, value_name = "COMMAND")]
    pub launcher: Option<String>,
    /// Print the commands of the unfinished runs, and exit
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Runs the subcommand.
///
/// # Errors
/// Returns the error of the subcommand.
pub fn run(args: ScaleArgs) -> Result<(), CliError> {
    match args.command {
        ScaleCommand::Plan(args) => plan::run(&args),
        ScaleCommand::Run(args) => train(args),
        ScaleCommand::Fit(args) => fit::run(&args),
        ScaleCommand::Predict(args) => predict::run(&args),
    }
}

/// Trains the unfinished runs of the plan as a sweep.
fn train(args: RunArgs) -> Result<(), CliError> {
    let file = args.dir.join(STUDY_FILE);
    let dir = shell_path(&args.dir);
    if !file.exists() {
        return Err(
            CliError::new(format!("{dir} has no {STUDY_FILE}")).hint(format!(
                "plan the study first: emberlm scale plan {dir} --time 10m"
            )),
        );
    }
    let is_dry = args.dry_run;
    sweep::run(SweepArgs {
        file,
        out: Some(args.dir),
        parallel: args.parallel,
        launcher: args.launcher,
        dry_run: is_dry,
        json: false,
        backend: args.backend,
    })?;
    match is_dry {
        true => Ok(()),
        false => print(&format!("next: emberlm scale fit {dir}\n")),
    }
}
