//! `emberlm doctor --full`: a report on a GPU and its driver, from measurements and comparisons.
//!
//! Each check runs commands of this program as child processes with a time limit. A crash in the driver then
//! ends one check instead of the report.
//!
//! | module | contents |
//! |---|---|
//! | `check` | the checks and their shares of the time |
//! | `session` | shared state, and running child processes |
//! | `comparisons`, `runs`, `benchmarks` | the checks' implementations |
//! | `finding` | results of a check |
//! | `report` | the written report |

mod benchmarks;
mod check;
mod comparisons;
mod finding;
mod report;
mod runs;
mod session;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs};

use clap::{Args, ValueEnum};
use serde::Serialize;

use self::check::{Check, share_of_time};
use self::finding::{Findings, Outcome};
use self::report::{CheckReport, Report};
use self::session::Session;
use super::cpu_backend;
use crate::backend::Placement;
use crate::backend::machine::Machine;
use crate::error::CliError;
use crate::new_folder::folder_parser;
use crate::output::{print, print_json};
use crate::{console, values};

/// The options of `doctor --full`.
#[derive(Debug, Args)]
pub struct FullArgs {
    /// Report on a device: operations, models, training, resuming, speed and memory, in a Markdown and a JSON file
    #[arg(long, conflicts_with_all = ["only", "operations", "model"])]
    full: bool,
    /// With --full: the time limit of all checks together; the rest is reported as skipped
    #[arg(long, value_name = "N", default_value_t = 10.0, requires = "full", value_parser = values::positive)]
    minutes: f64,
    /// With --full: the sizes of the trained and timed models [default: small on a CPU, full on a GPU]
    #[arg(long, value_enum, requires = "full")]
    size: Option<Size>,
    /// With --full: a Python with PyTorch, measured for comparison [default: python3, if it has PyTorch]
    #[arg(long, value_name = "PATH", requires = "full")]
    python: Option<PathBuf>,
    /// With --full: only this check; can be repeated
    #[arg(long = "check", value_name = "NAME", value_enum, requires = "full")]
    checks: Vec<Check>,
    /// With --full: the report's folder [default: doctor-BACKEND-NUMBER]
    #[arg(long, value_name = "DIR", requires = "full", value_parser = folder_parser("a report"))]
    out: Option<PathBuf>,
}

emberlm_system::named! {
    /// The size of the models that are trained and timed.
    #[derive(ValueEnum, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Size {
        /// For a CPU, or a GPU that a CPU imitates.
        Small = "small",
        /// For a GPU.
        Full = "full",
    }
}

impl FullArgs {
    /// Returns true if `--full` was given.
    pub fn is_asked_for(&self) -> bool {
        self.full
    }

    /// The selected checks, in their fixed order and without duplicates.
    fn checks(&self) -> Vec<Check> {
        let selected = |check: &Check| self.checks.is_empty() || self.checks.contains(check);
        Check::value_variants()
            .iter()
            .copied()
            .filter(selected)
            .collect()
    }
}

/// Runs the checks, and writes the report after each of them.
///
/// # Errors
/// Returns an error if a check fails or the report cannot be written.
pub fn run(args: &FullArgs, placement: Placement, json: bool) -> Result<(), CliError> {
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(60.0 * args.minutes.min(1e6));
    let out = new_out(args, placement)?;
    let machine = Machine::of(placement);
    let default_size = match machine.computes_on_cpu() {
        true => Size::Small,
        false => Size::Full,
    };
    let size = args.size.unwrap_or(default_size);
    let reference = cpu_backend(Some(placement.backend));
    let python = args.python.as_deref().map(absolute).transpose()?;
    let mut session = Session::new(placement, reference, size, python, &out)?;
    let mut report = Report::new(machine, placement, size, args.minutes);
    let checks = args.checks();
    for (place, &check) in checks.iter().enumerate() {
        let started = Instant::now();
        let share = share_of_time(&checks[place..]);
        let limit = end.saturating_duration_since(started).mul_f64(share);
        session.begin(check, started + limit);
        console::note(format_args!(
            "{check}: at most {:.0} s",
            limit.as_secs_f64()
        ));
        let findings = match limit < SHORTEST {
            true => Findings::of(Outcome::skipped("no time was left")),
            false => check.run(&mut session).unwrap_or_else(Findings::of),
        };
        let seconds = started.elapsed().as_secs_f64();
        let done = CheckReport::new(check, seconds, findings);
        console::note(format_args!("{check}: {} in {seconds:.0} s", done.outcome));
        report.add(done, start.elapsed().as_secs_f64());
        report.write(&out)?;
    }
    match json {
        true => print_json(&report)?,
        false => print(&format!(
            "{}Report           {}\n",
            report.summary(),
            out.join(report::MARKDOWN_FILE).display()
        ))?,
    }
    let failed: Vec<String> = report.failed().map(|check| check.to_string()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let message = format!("{} failed on the {placement} backend", failed.join(", "));
    let logs = out.join(session::LOGS).display().to_string();
    Err(CliError::new(message).hint(format!("the output of each command is in {logs}")))
}

/// The minimum remaining time to start a check.
const SHORTEST: Duration = Duration::from_secs(1);

/// Creates the report's folder.
fn new_out(args: &FullArgs, placement: Placement) -> Result<PathBuf, CliError> {
    let out = match &args.out {
        Some(out) => out.clone(),
        None => free_folder(placement),
    };
    let filled = fs::read_dir(&out).is_ok_and(|mut entries| entries.next().is_some());
    if filled || out.is_file() {
        let message = format!("{} is there already", out.display());
        return Err(CliError::usage(message).hint("choose another --out"));
    }
    fs::create_dir_all(&out).map_err(CliError::io("create", &out))?;
    Ok(out)
}

/// Returns the first `doctor-BACKEND-NUMBER` that does not exist.
fn free_folder(placement: Placement) -> PathBuf {
    let folder = |number: usize| PathBuf::from(format!("doctor-{placement}-{number:03}"));
    (1..)
        .map(folder)
        .find(|folder| !folder.exists())
        .unwrap_or_else(|| folder(0))
}

/// Makes a program's path absolute. A bare name is left to the system's lookup.
fn absolute(program: &Path) -> Result<PathBuf, CliError> {
    match program.components().count() {
        1 => Ok(program.to_owned()),
        _ => std::path::absolute(program).map_err(CliError::io("find", program)),
    }
}

/// The path of this program.
fn program() -> Result<PathBuf, CliError> {
    env::current_exe().map_err(CliError::io("find this program beside", Path::new(".")))
}
