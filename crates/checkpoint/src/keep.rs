//! Removes old checkpoints of a run.

use std::fs;
use std::path::Path;

use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};

use crate::checkpoint::{FOLDER, Progress, STATE, listed};
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

/// Removes the checkpoints up to step `newest` that the policy does not keep, and temporary ones before it. Later
/// checkpoints are ignored: they are damaged ones that a resumed run has skipped.
///
/// # Errors
/// The directory cannot be read, or a checkpoint cannot be removed.
pub fn prune(run: &Path, newest: usize, keep: Keep) -> Result<(), CheckpointError> {
    let mut steps = listed(run)?;
    steps.retain(|(step, _)| *step <= newest);
    let is_best = |step: usize| keep.best == Some(step);
    let (temporary, mut kept): (Vec<_>, Vec<_>) = steps
        .into_iter()
        .partition(|(step, path)| *step < newest && !is_best(*step) && is_temporary(path));
    let old = match keep.last {
        0 => 0,
        last => kept.len().saturating_sub(last),
    };
    kept.truncate(old);
    kept.retain(|(step, _)| !is_best(*step));
    let removed = temporary.iter().chain(&kept);
    removed
        .map(|(_, path)| path)
        .try_for_each(|path| discard(path))
}

/// Returns true if a checkpoint is marked as temporary. One that cannot be read is not.
fn is_temporary(path: &Path) -> bool {
    let text = read_text(&path.join(STATE), DESCRIPTION_LIMIT).unwrap_or_default();
    serde_json::from_str(&text).is_ok_and(|progress: Progress| progress.temporary)
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
    fn temporary_checkpoints_are_replaced_by_newer_ones() {
        let left = |last, best| {
            let run = run_with(&[1, 2, 3, 4, 5]);
            for step in [2, 4, 5] {
                let folder = run.path().join(FOLDER).join(format!("step-{step:08}"));
                let state = format!(r#"{{"step": {step}, "temporary": true}}"#);
                fs::write(folder.join(STATE), state).unwrap();
            }
            prune(run.path(), 5, Keep { last, best }).unwrap();
            let steps = listed(run.path()).unwrap().into_iter();
            steps.map(|(step, _)| step).collect::<Vec<_>>()
        };
        assert_eq!(left(0, None), [1, 3, 5]);
        assert_eq!(left(0, Some(2)), [1, 2, 3, 5]);
        assert_eq!(left(2, None), [3, 5]);
        assert_eq!(left(1, Some(4)), [4, 5]);
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
