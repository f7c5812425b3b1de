//! Finds and names run folders.

use std::fs;
use std::path::{Path, PathBuf};

use emberlm_system::nearest::nearest;
use emberlm_trainer::events::EVENTS_FILE;
use emberlm_trainer::folder::CONFIG_FILE;

use crate::error::CliError;
use crate::shell::shell_path;

/// The default folder of runs.
pub const DEFAULT_FOLDER: &str = "runs";

/// Returns true if `folder` is a run.
pub fn is_run(folder: &Path) -> bool {
    folder.join(EVENTS_FILE).exists() || folder.join(CONFIG_FILE).exists()
}

/// Checks that `folder` is a run.
///
/// # Errors
/// Returns an error if the folder does not exist or is not a run.
pub fn check_run(folder: &Path) -> Result<(), CliError> {
    if !folder.exists() {
        return Err(missing(folder));
    }
    match is_run(folder) {
        true => Ok(()),
        false => Err(CliError::new(format!(
            "{} is not a run: it has no {EVENTS_FILE}",
            folder.display()
        ))
        .hint("a run is a folder that `emberlm train` created; `emberlm runs DIR` lists runs")),
    }
}

/// Returns the runs directly in a folder, sorted by name.
///
/// # Errors
/// Returns an error if the folder cannot be read.
pub fn runs_in(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let mut runs = subfolders(folder)?;
    runs.retain(|path| is_run(path));
    Ok(runs)
}

/// The error for a missing run or folder of runs. Its hint suggests the run with the most similar name.
pub fn missing(path: &Path) -> CliError {
    let beside = path.parent().filter(|parent| *parent != Path::new(""));
    let folders = [beside.unwrap_or(Path::new(".")), Path::new(DEFAULT_FOLDER)];
    let runs = folders
        .iter()
        .flat_map(|folder| runs_below(folder).unwrap_or_default());
    let runs: Vec<(String, PathBuf)> = runs
        .filter_map(|run| Some((run.file_name()?.to_string_lossy().into_owned(), run)))
        .collect();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let close = nearest(&name, runs.iter().map(|(name, _)| name.as_str()));
    let close = runs
        .iter()
        .find(|(name, _)| Some(name.as_str()) == close)
        .map(|(_, run)| run.strip_prefix(".").unwrap_or(run));
    let error = CliError::new(format!("no run or folder {}", path.display()));
    match close {
        Some(run) => error.hint(format!("did you mean {}?", shell_path(run))),
        None => error.hint(
            "`emberlm train --out RUN` makes a run, in the folder runs by default; `emberlm runs DIR` lists them",
        ),
    }
}

/// The error for a file where a folder of runs is expected.
pub fn not_a_folder(path: &Path) -> CliError {
    CliError::new(format!(
        "{} is a file, not a folder of runs",
        path.display()
    ))
    .hint("a run is a folder that `emberlm train` created; `emberlm runs DIR` lists runs")
}

/// Returns the runs in a folder and in its subfolders, such as sweeps.
///
/// # Errors
/// Returns an error if the folder cannot be read.
pub fn runs_below(dir: &Path) -> Result<Vec<PathBuf>, CliError> {
    let mut found = Vec::new();
    for folder in subfolders(dir)? {
        if is_run(&folder) {
            found.push(folder);
        } else {
            // A folder without read permission holds no runs of this user.
            found.extend(runs_in(&folder).unwrap_or_default());
        }
    }
    Ok(found)
}

/// Display names of runs: the folder names, or full paths where folder names clash.
pub fn names(runs: &[PathBuf]) -> Vec<String> {
    let name = |run: &PathBuf| {
        let whole = run.canonicalize().ok();
        let name = whole.as_deref().and_then(Path::file_name);
        name.map(|name| name.to_string_lossy().into_owned())
    };
    let short: Vec<_> = runs.iter().map(name).collect();
    let shown = runs.iter().zip(&short).map(|(run, name)| {
        let unique = name.is_some() && short.iter().filter(|other| *other == name).count() == 1;
        name.clone()
            .filter(|_| unique)
            .unwrap_or_else(|| run.display().to_string())
    });
    shown.collect()
}

/// Returns the subfolders of a folder, sorted by name.
///
/// # Errors
/// Returns an error if the folder cannot be read.
pub fn subfolders(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder).map_err(CliError::io("read", folder))? {
        let path = entry.map_err(CliError::io("read", folder))?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}
