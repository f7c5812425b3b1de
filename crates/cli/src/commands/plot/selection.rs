//! The runs to plot.

use std::path::{Path, PathBuf};

use emberlm_trainer::RunFolder;

use crate::console;
use crate::error::{CliError, warn};
use crate::plot::NamedRun;
use crate::run_folders::{DEFAULT_FOLDER, is_run, names, runs_below, runs_in};
use crate::run_history::History;
use crate::shell::shell_path;

/// Maximum number of runs that are selected without arguments.
const NEWEST: usize = 8;

/// Reads the runs of the arguments, in their order. A folder stands for the runs in it. Without arguments, selects the
/// running and the newest runs of the default folder, and prints their names.
///
/// # Errors
/// Returns an error if an argument is not a run or a run has no logged step.
pub fn select(arguments: &[PathBuf]) -> Result<Vec<NamedRun>, CliError> {
    if arguments.is_empty() {
        return newest();
    }
    let mut folders = Vec::new();
    for run in arguments {
        let inner = match run.is_dir() && !is_run(run) {
            true => runs_in(run)?,
            false => Vec::new(),
        };
        match inner.is_empty() {
            true if run.is_dir() && !is_run(run) => return Err(no_runs(run)),
            true => folders.push(run.clone()),
            false => folders.extend(inner),
        }
    }
    let names = names(&folders);
    let runs = folders.into_iter().zip(names);
    runs.map(|(folder, name)| {
        let history = History::read(&folder)?;
        history.damage.iter().for_each(|damage| warn(damage));
        if history.steps.is_empty() {
            return Err(no_steps(&folder));
        }
        Ok(NamedRun::new(name, folder, history))
    })
    .collect()
}

/// The running runs of the default folder, then the last active ones. Runs without a logged step or with unreadable
/// events are left out.
fn newest() -> Result<Vec<NamedRun>, CliError> {
    let dir = Path::new(DEFAULT_FOLDER);
    let none = || {
        CliError::usage(format!(
            "there is no run with a logged step in {DEFAULT_FOLDER}"
        ))
        .hint("name the runs to plot: `emberlm plot RUN --out FILE.html`")
    };
    if !dir.is_dir() {
        return Err(none());
    }
    let mut found = Vec::new();
    for folder in runs_below(dir)? {
        let history = History::read(&folder).unwrap_or_default();
        if !history.steps.is_empty() {
            let is_running = RunFolder::is_held(&folder);
            found.push((is_running, folder, history));
        }
    }
    found.sort_by(|a, b| {
        let time = |history: &History| history.time.unwrap_or(f64::NEG_INFINITY);
        let newest = time(&b.2).total_cmp(&time(&a.2));
        b.0.cmp(&a.0).then(newest).then(a.1.cmp(&b.1))
    });
    let all = found.len();
    found.truncate(NEWEST);
    if found.is_empty() {
        return Err(none());
    }
    let folders: Vec<PathBuf> = found.iter().map(|(_, folder, _)| folder.clone()).collect();
    let shown: Vec<String> = folders.iter().map(|folder| shell_path(folder)).collect();
    let shown = shown.join(" ");
    console::note(match all {
        ..=NEWEST => format!("plotting all runs of {DEFAULT_FOLDER}: {shown}"),
        _ => format!("plotting the newest {NEWEST} of {all} runs of {DEFAULT_FOLDER}: {shown}"),
    });
    let runs = names(&folders).into_iter().zip(found);
    Ok(runs
        .map(|(name, (_, folder, history))| {
            history.damage.iter().for_each(|damage| warn(damage));
            NamedRun::new(name, folder, history)
        })
        .collect())
}

fn no_runs(folder: &Path) -> CliError {
    let message = format!("{} is not a run and does not contain one", folder.display());
    CliError::new(message)
        .hint("a run is a folder that `emberlm train` created; `emberlm runs DIR` lists runs")
}

fn no_steps(run: &Path) -> CliError {
    let message = format!("{} has no logged step yet", run.display());
    CliError::new(message).hint("wait for its first log line, or lower train.log_interval")
}
