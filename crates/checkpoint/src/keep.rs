//! Removes old checkpoints of a run.

use std::fs;
use std::path::{Path, PathBuf};

use crate::checkpoint::{FOLDER, step_of};
use crate::error::CheckpointError;
use crate::write::remove;

/// Retention policy for the checkpoints of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Number of newest checkpoints to keep; 0 keeps all.
    pub last: usize,
    /// Step of a checkpoint to keep in addition, such as the one with the best validation loss.
    pub best: Option<usize>,
}

/// Removes the checkpoints up to step `newest` that the policy does not keep. Later checkpoints are ignored: they are
/// damaged ones that a resumed run has skipped.
///
/// # Errors
/// The directory cannot be read, or a checkpoint cannot be removed.
pub fn prune(run: &Path, newest: usize, keep: Keep) -> Result<(), CheckpointError> {
    if keep.last == 0 {
        return Ok(());
    }
    let mut steps = listed(run)?;
    steps.retain(|(step, _)| *step <= newest);
    let old = steps.len().saturating_sub(keep.last);
    for (step, path) in &steps[..old] {
        if keep.best != Some(*step) {
            discard(path)?;
        }
    }
    Ok(())
}

/// Lists the checkpoints of a run, by ascending step, with their directories.
pub(crate) fn listed(run: &Path) -> Result<Vec<(usize, PathBuf)>, CheckpointError> {
    let folder = run.join(FOLDER);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(CheckpointError::file("read", folder)(error)),
    };
    let mut steps: Vec<(usize, PathBuf)> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter_map(|path| Some((step_of(&path)?, path)))
        .collect();
    steps.sort_unstable();
    Ok(steps)
}

/// Removes partially written and partially removed checkpoints of an interrupted process.
///
/// # Errors
/// A directory cannot be removed.
pub fn sweep(run: &Path) -> Result<(), CheckpointError> {
    let Ok(entries) = fs::read_dir(run.join(FOLDER)) else {
        return Ok(());
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(".step-") {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a checkpoint. It is renamed first, so that no reader finds a partially removed checkpoint.
fn discard(path: &Path) -> Result<(), CheckpointError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let hidden = path.with_file_name(format!(".{name}.removed"));
    remove(&hidden)?;
    fs::rename(path, &hidden).map_err(CheckpointError::file("remove", path))?;
    remove(&hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_with(steps: &[usize]) -> tempfile::TempDir {
        let run = tempfile::tempdir().unwrap();
        for step in steps {
            let folder = run.path().join(FOLDER).join(format!("step-{step:08}"));
            fs::create_dir_all(folder.join("inside")).unwrap();
        }
        run
    }

    fn kept(steps: &[usize], newest: usize, last: usize, best: Option<usize>) -> Vec<usize> {
        let run = run_with(steps);
        prune(run.path(), newest, Keep { last, best }).unwrap();
        let names = fs::read_dir(run.path().join(FOLDER)).unwrap().count();
        let steps = listed(run.path()).unwrap();
        assert_eq!(names, steps.len(), "something is left over");
        steps.into_iter().map(|(step, _)| step).collect()
    }

    #[test]
    fn newest_and_best_checkpoints_are_kept() {
        assert_eq!(kept(&[1, 2, 3, 4], 4, 0, None), [1, 2, 3, 4]);
        assert_eq!(kept(&[1, 2, 3, 4], 4, 2, None), [3, 4]);
        assert_eq!(kept(&[1, 2, 3, 4], 4, 2, Some(1)), [1, 3, 4]);
        assert_eq!(kept(&[1, 2, 3, 4], 4, 2, Some(4)), [3, 4]);
        assert_eq!(kept(&[9], 9, 3, None), [9]);
    }

    #[test]
    fn checkpoints_after_the_newest_are_ignored() {
        // Checkpoint 40 was damaged; the run resumed from 20 and wrote 30.
        assert_eq!(kept(&[10, 20, 30, 40], 30, 1, None), [30, 40]);
    }

    #[test]
    fn sweep_removes_partial_checkpoints() {
        let run = run_with(&[5]);
        for name in [".step-00000006.partial", ".step-00000004.removed"] {
            fs::create_dir_all(run.path().join(FOLDER).join(name).join("inside")).unwrap();
        }
        sweep(run.path()).unwrap();
        assert_eq!(fs::read_dir(run.path().join(FOLDER)).unwrap().count(), 1);
    }
}
