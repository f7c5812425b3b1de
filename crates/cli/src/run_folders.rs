//! Finds the folders of runs, and names them.

use std::fs;
use std::path::{Path, PathBuf};

use emberlm_trainer::events::EVENTS_FILE;
use emberlm_trainer::folder::CONFIG_FILE;

use crate::error::CliError;

/// Returns true if a folder is a run's.
pub fn is_run(folder: &Path) -> bool {
    folder.join(EVENTS_FILE).exists() || folder.join(CONFIG_FILE).exists()
}

/// The runs in a folder, by their names.
///
/// # Errors
/// The folder cannot be read.
pub fn runs_in(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let mut runs = subfolders(folder)?;
    runs.retain(|path| is_run(path));
    Ok(runs)
}

/// The runs within a folder, and within the folders in it, as a sweep's are.
///
/// # Errors
/// The folder cannot be read.
pub fn runs_below(dir: &Path) -> Result<Vec<PathBuf>, CliError> {
    let mut found = Vec::new();
    for folder in subfolders(dir)? {
        if is_run(&folder) {
            found.push(folder);
        } else {
            // A folder that this user cannot read holds no run of theirs.
            found.extend(runs_in(&folder).unwrap_or_default());
        }
    }
    Ok(found)
}

/// The names of runs: their folders' names, or the whole paths where those would be the same.
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

/// The folders in a folder, by their names.
///
/// # Errors
/// The folder cannot be read.
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
