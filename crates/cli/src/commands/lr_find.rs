//! `emberlm lr-find`: a learning-rate range test (Smith 2017, [1506.01186](https://arxiv.org/abs/1506.01186)).
//!
//! A run of few steps, whose learning rate rises geometrically, ends when the loss has grown far above that of its first step.

mod curve;

use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use emberlm_trainer::config::ExponentialConfig;
use emberlm_trainer::hooks::{Hook, HookContext, HookError, StepEnd, StepResult};
use emberlm_trainer::{RunResult, ScheduleConfig, TrainConfig};
use serde::Serialize;

use super::plot;
use super::train::{self, TrainArgs};
use crate::error::CliError;
use crate::examples;
use crate::output::{print, print_json};
use crate::plot::{AxisOptions, Figure, Group, PictureFile, Quantity, XQuantity};
use crate::ranks::Ranks;
use crate::shell::shell_path;
use crate::{console, values};
use curve::{Curve, Suggestion};

/// Arguments of `lr-find`.
#[derive(Debug, Args)]
#[command(
    after_help = examples::LR_FIND,
    mut_arg("resume", |arg| arg.hide(true)),
    mut_arg("restart", |arg| arg.hide(true)),
    mut_arg("epochs", |arg| arg.hide(true)),
    mut_arg("learning_rate", |arg| arg.hide(true)),
    mut_arg("early_stop", |arg| arg.hide(true)),
    mut_arg("eval_interval", |arg| arg.hide(true)),
)]
pub struct LrFindArgs {
    /// The learning rate of the first step
    #[arg(long, value_name = "RATE", default_value_t = 1e-6, value_parser = values::positive, help_heading = "Range")]
    pub lowest: f64,
    /// The learning rate of the last step
    #[arg(long, value_name = "RATE", default_value_t = 1.0, value_parser = values::positive, help_heading = "Range")]
    pub highest: f64,
    /// Draw the loss over the learning rate into a file
    #[arg(long, value_name = PictureFile::VALUE_NAME, value_parser = PictureFile::parse, help_heading = "Output")]
    pub plot: Option<PictureFile>,
    /// Print {"run", "steepest_learning_rate", "lowest_loss_learning_rate", "lowest_loss", "points"}
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub train: TrainArgs,
}

/// Number of steps without `--steps`.
const STEPS: usize = 100;

/// Runs the test and prints the learning rates it suggests.
///
/// # Errors
/// Returns an error if the run cannot start or fails, or its loss never falls.
pub fn run(args: LrFindArgs) -> Result<(), CliError> {
    let LrFindArgs {
        lowest,
        highest,
        plot,
        json,
        mut train,
    } = args;
    check(lowest, highest, &train)?;
    let ranks = Ranks::join()?;
    if train.out.is_none() {
        let name = format!("lr-find-{}", train::run_name(&train));
        train.out = Some(train::free_run_folder(&name));
    }
    let steps = train.steps.unwrap_or(STEPS);
    let recorded = Recorded::default();
    let change = |config: &mut TrainConfig| {
        config.steps = steps;
        config.schedule = ScheduleConfig::Exponential(ExponentialConfig {
            learning_rate: highest,
            initial_learning_rate: lowest,
        });
        config.log_interval = 1;
        // The curve is that of the training loss. The evaluation after the last step is as short as possible.
        config.evaluation.interval = usize::MAX;
        config.evaluation.tokens = 1;
        config.evaluation.sample_tokens = 0;
        config.evaluation.early_stop = 0;
        config.checkpoints.interval = usize::MAX;
        config.checkpoints.minutes = 0;
    };
    let hooks: Vec<Box<dyn Hook>> = vec![Box::new(recorded.clone())];
    let trained = train::train(train, &ranks, change, hooks);
    let is_zero = ranks.rank().is_zero();
    ranks.end(trained.and_then(|trained| match trained {
        Some((result, _)) if is_zero => report(&result, &recorded.curve(), plot.as_ref(), json),
        _ => Ok(()),
    }))
}

fn check(lowest: f64, highest: f64, train: &TrainArgs) -> Result<(), CliError> {
    if lowest >= highest {
        let message = format!("--lowest must be below --highest (got {lowest} and {highest})");
        return Err(CliError::usage(message));
    }
    let set_elsewhere = [
        ("--resume", train.resume.is_some()),
        ("--epochs", train.epochs.is_some()),
        ("--learning-rate", train.learning_rate.is_some()),
        ("--early-stop", train.early_stop.is_some()),
        ("--eval-interval", train.eval_interval.is_some()),
    ];
    match set_elsewhere.into_iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(
            CliError::usage(format!("lr-find cannot be used with {option}")).hint(
                "it starts a run of --steps whose learning rate rises from --lowest to --highest",
            ),
        ),
        None => Ok(()),
    }
}

/// The losses of the run, shared with the hook that records them and ends it.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<Curve>>);

impl Recorded {
    fn curve(&self) -> Curve {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Hook for Recorded {
    fn on_step(
        &mut self,
        step: &StepEnd<'_>,
        context: &mut HookContext<'_>,
    ) -> Result<(), HookError> {
        let mut curve = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match step.result {
            StepResult::Updated(metrics) => curve.push(metrics.learning_rate, metrics.loss),
            StepResult::Skipped { .. } => curve.has_diverged = true,
        }
        if curve.has_diverged {
            context.stop();
        }
        Ok(())
    }
}

/// The command's JSON.
#[derive(Serialize)]
struct Found<'a> {
    run: String,
    #[serde(flatten)]
    suggestion: Suggestion,
    points: &'a [curve::Point],
}

fn report(
    result: &RunResult,
    curve: &Curve,
    plot: Option<&PictureFile>,
    json: bool,
) -> Result<(), CliError> {
    let run = &result.run;
    if let Some(file) = plot {
        draw(result, file)?;
    }
    let Some(suggestion) = curve.suggestion() else {
        return Err(
            CliError::new("the loss does not fall at any of the tested learning rates")
                .hint("test lower ones, or more steps: --lowest 1e-9 --steps 300"),
        );
    };
    if json {
        return print_json(&Found {
            run: run.display().to_string(),
            suggestion,
            points: &curve.points,
        });
    }
    if !curve.has_diverged {
        console::note(
            "The loss has not grown far above that of the first step: the highest rates may be usable.",
        );
    }
    let Suggestion {
        steepest_learning_rate: steepest,
        lowest_loss_learning_rate: rate,
        lowest_loss: loss,
    } = suggestion;
    print(&format!(
        "Steepest descent  {steepest:.1e}\n\
         Lowest loss       {rate:.1e} (smoothed loss {loss:.4}); a tenth of it is {:.1e}\n\
         Run               {}\n\
         To plot           emberlm plot {} --x rate --log-x --out rates.html\n",
        rate / 10.0,
        run.display(),
        shell_path(run),
    ))
}

fn draw(result: &RunResult, file: &PictureFile) -> Result<(), CliError> {
    let runs = plot::select(slice::from_ref(&result.run))?;
    let groups: Vec<Group> = runs.into_iter().map(Group::single).collect();
    let runs = groups.iter().flat_map(|group| &group.runs);
    let quantity = Quantity::find("loss", runs)?;
    let options = AxisOptions {
        log_x: true,
        ..AxisOptions::default()
    };
    let figure = Figure::new(&groups, "run", XQuantity::Rate, &quantity, options)?;
    plot::write(file, &figure, &figure.legend, &groups)
}
