//! `emberlm doctor`: compares a backend's results on this machine with the reference implementation's.
//!
//! | module | contents |
//! |---|---|
//! | `case` | inputs and results of an operation |
//! | `operations`, `models` | the compared operations and models |
//! | `comparison` | relative errors |
//! | `full` | `--full`: a report on a device |
//! | `measure` | speed and memory measurements of the report |

mod case;
mod comparison;
mod full;
pub mod measure;
mod models;
mod operations;

use burn::tensor::Device;
use clap::Args;
use emberlm_kernels::TrainingBackend;
use serde::Serialize;

use self::case::Case;
use self::comparison::{Comparison, Outcome, compare};
use crate::backend::{BackendArg, BackendName, Job, Placement, quietly};
use crate::error::CliError;
use crate::examples;
use crate::output::{Align, Table, print, print_json};

/// Maximum relative error `‖found - expected‖ / ‖expected‖` of a model, within f32 rounding.
const MODEL_TOLERANCE: f64 = 1e-3;

/// Arguments of `doctor`.
#[derive(Debug, Args)]
#[command(after_help = examples::DOCTOR)]
pub struct DoctorArgs {
    /// Only checks with NAME in their name, such as attention or gpt2
    #[arg(long, value_name = "NAME", default_value = "")]
    only: String,
    /// Check operations only, not models: a GPU compiles shaders for each model
    #[arg(long)]
    operations: bool,
    /// Only the tiny model of this preset
    #[arg(long = "preset", alias = "model", value_name = "NAME", conflicts_with_all = ["only", "operations"])]
    model: Option<String>,
    #[command(flatten)]
    full: full::FullArgs,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// The command's output.
#[derive(Debug, Serialize)]
struct Report {
    backend: &'static str,
    device: Option<String>,
    #[serde(rename = "verdicts")]
    comparisons: Vec<Comparison>,
    /// True if another backend is available to compare the models with.
    models: bool,
}

/// Runs the command.
///
/// # Errors
/// Returns an error if the backend is unavailable, no check matches the name, or a result is wrong.
pub fn run(args: DoctorArgs) -> Result<(), CliError> {
    let placement = args.backend.choose()?;
    if args.full.is_asked_for() {
        return full::run(&args.full, placement, args.json);
    }
    let Some(reference) = cpu_backend(None) else {
        return Err(
            CliError::usage("this binary has no CPU backend to compare with")
                .hint("build it without --no-default-features"),
        );
    };
    // Operations are compared with reference implementations, models with the same model on another backend.
    let other = cpu_backend(Some(placement.backend)).filter(|_| !args.operations);
    let tried = |operations: Option<Implementation>, models| Checks {
        only: args.only.clone(),
        operations: operations.filter(|_| args.model.is_none()),
        models,
        model: args.model.clone(),
    };
    // Runs the backend under test first, since it is the one that may be unavailable.
    let found = placement.run(tried(Some(Implementation::Own), other.is_some()))?;
    let mut expected = reference.run(tried(Some(Implementation::Reference), false))?;
    if let Some(other) = other {
        expected.extend(other.run(tried(None, true))?);
    }
    if found.is_empty() {
        let only = args.model.as_ref().unwrap_or(&args.only);
        return Err(
            CliError::usage(format!("no check has `{only}` in its name"))
                .hint("run it without --only to list all checks"),
        );
    }
    // `found` does not include operations in a precision that the backend does not support.
    let pairs = found.into_iter().map(|found| {
        let of = expected.iter().position(|other| other.name == found.name);
        let expected = match of {
            Some(place) => expected.swap_remove(place),
            None => found.missing(),
        };
        (found, expected)
    });
    let report = Report {
        backend: placement.name(),
        device: placement.device_name(),
        comparisons: pairs
            .map(|(found, expected)| compare(found, expected))
            .collect(),
        models: other.is_some(),
    };
    match args.json {
        true => print_json(&report)?,
        false => print(&report.text())?,
    }
    match report
        .comparisons
        .iter()
        .find(|comparison| !comparison.passed())
    {
        None => Ok(()),
        Some(first) => Err(CliError::new(format!(
            "the {placement} backend does not compute `{}` right here",
            first.name
        ))
        .hint("update the device's driver and try again")
        .hint("or compute on the CPU: --backend flex")),
    }
}

/// Returns a compiled-in CPU backend other than `but`.
fn cpu_backend(but: Option<BackendName>) -> Option<Placement> {
    [BackendName::Flex, BackendName::Ndarray]
        .into_iter()
        .find(|&backend| backend.is_compiled() && Some(backend) != but)
        .map(Placement::of)
}

/// The implementation of the operations under test.
#[derive(Clone, Copy, Debug)]
enum Implementation {
    /// The backend's implementation.
    Own,
    /// The reference implementation, composed of Burn's operations and differentiated by Burn.
    Reference,
}

/// The checks to run on a backend.
struct Checks {
    only: String,
    operations: Option<Implementation>,
    models: bool,
    /// The preset of the only model to check. `None` checks all.
    model: Option<String>,
}

impl Job for Checks {
    type Output = Vec<Outcome>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let mut outcomes = Vec::new();
        if let Some(how) = self.operations {
            let case = Case::<B> {
                device: device.clone(),
                composed: matches!(how, Implementation::Reference),
            };
            for operation in operations::all() {
                let has = case.composed || B::multiplies_in(operation.precision, &device);
                if has && operation.name.contains(&self.only) {
                    outcomes.push(Outcome {
                        parts: quietly(|| (operation.run)(&case)),
                        name: operation.name,
                        tolerance: operation.tolerance,
                    });
                }
            }
        }
        if self.models {
            for (name, config) in models::all() {
                let chosen = self.model.as_ref().is_none_or(|model| *model == name);
                if chosen && name.contains(&self.only) {
                    let parts = quietly(|| models::parts::<B>(&config, &device)).flatten();
                    let tolerance = MODEL_TOLERANCE;
                    outcomes.push(Outcome {
                        name,
                        tolerance,
                        parts,
                    });
                }
            }
        }
        outcomes
    }
}

impl Report {
    fn text(&self) -> String {
        let mut text = format!(
            "{}{}\n",
            self.backend,
            self.device
                .as_ref()
                .map_or(String::new(), |name| format!(": {name}"))
        );
        let mut table = Table::new([
            Align::Left,
            Align::Left,
            Align::Right,
            Align::Right,
            Align::Left,
        ]);
        table.row(["", "furthest off", "error", "allowed", ""]);
        for comparison in &self.comparisons {
            let mark = match (comparison.passed(), &comparison.failure) {
                (true, _) => "ok".to_owned(),
                (false, None) => "WRONG".to_owned(),
                (false, Some(reason)) => format!("FAILED: {reason}"),
            };
            let error = comparison
                .error
                .map_or(String::new(), |error| format!("{error:.1e}"));
            let allowed = format!("{:.0e}", comparison.tolerance);
            table.row([&comparison.name, &comparison.part, &error, &allowed, &mark]);
        }
        text += &table.render();
        let wrong = self
            .comparisons
            .iter()
            .filter(|comparison| !comparison.passed())
            .count();
        text += &match wrong {
            0 => format!("all {} are right\n", self.comparisons.len()),
            _ => format!("{wrong} of {} are wrong\n", self.comparisons.len()),
        };
        if !self.models {
            text += "models were not compared\n";
        }
        text
    }
}
