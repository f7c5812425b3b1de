//! The value of `train --resume`: a run, or one of its checkpoints.

use std::path::{Path, PathBuf};

use emberlm_checkpoint::checkpoint::{FOLDER, STATE, folder_name};
use emberlm_trainer::checkpoint::Checkpoint;
use emberlm_trainer::{TrainError, folder};

use crate::error::CliError;
use crate::shell::shell_path;

/// A run or a checkpoint.
#[derive(Debug)]
pub struct ResumeTarget {
    /// The path on the command line.
    given: PathBuf,
    /// The run; `None` for a checkpoint that is not in the folder of its run.
    run: Option<PathBuf>,
    checkpoint: Option<PathBuf>,
}

impl ResumeTarget {
    /// Finds the run and the checkpoint that a path refers to: `RUN`, `RUN/checkpoints/step-00000500`, or
    /// `RUN/checkpoints/500`.
    ///
    /// # Errors
    /// The path is neither a run nor a checkpoint.
    pub fn find(given: &Path) -> Result<Self, CliError> {
        let is_run = |path: &Path| path.join(folder::CONFIG_FILE).exists();
        let given = given.to_owned();
        if is_run(&given) {
            let run = Some(given.clone());
            let checkpoint = None;
            return Ok(Self {
                given,
                run,
                checkpoint,
            });
        }
        let path = numbered(&given).unwrap_or_else(|| given.clone());
        // The parents of a relative path such as `.` are known only then.
        let path = match path.parent().and_then(Path::parent) {
            Some(run) if is_run(run) => path,
            _ => path.canonicalize().unwrap_or(path),
        };
        if path.join(STATE).exists() {
            let folder = path.parent().filter(|folder| folder.ends_with(FOLDER));
            let run = folder.and_then(Path::parent).filter(|run| is_run(run));
            let run = run.map(Path::to_owned);
            let checkpoint = Some(path);
            return Ok(Self {
                given,
                run,
                checkpoint,
            });
        }
        match path
            .parent()
            .filter(|run| path.ends_with(FOLDER) && is_run(run))
        {
            Some(run) => Ok(Self {
                given,
                run: Some(run.to_owned()),
                checkpoint: None,
            }),
            None => Err(TrainError::NoRun { path: given }.into()),
        }
    }

    /// The path on the command line.
    pub fn shown(&self) -> &Path {
        &self.given
    }

    /// The chosen checkpoint, if any.
    pub fn checkpoint(&self) -> Option<&Path> {
        self.checkpoint.as_deref()
    }

    /// The run.
    ///
    /// # Errors
    /// The checkpoint is not in the folder of its run.
    pub fn run(&self) -> Result<&Path, CliError> {
        self.run.as_deref().ok_or_else(|| {
            CliError::new(format!(
                "{} is a checkpoint outside of the folder of its run",
                self.given.display()
            ))
            .hint(format!(
                "continue in a new run: emberlm train --resume {} --out NEW",
                shell_path(&self.given)
            ))
        })
    }

    /// Checks that the chosen checkpoint, if any, is the newest of its run, since a resumed run replaces later steps.
    ///
    /// # Errors
    /// `newest` is another checkpoint.
    pub fn check_is_newest(&self, newest: Option<&Checkpoint>) -> Result<(), CliError> {
        let Some(chosen) = &self.checkpoint else {
            return Ok(());
        };
        let name = |path: &Path| path.file_name().map(ToOwned::to_owned);
        let newest = newest.map(|newest| newest.path.as_path());
        if newest.and_then(name) == name(chosen) {
            return Ok(());
        }
        let shown = self.given.display();
        let newest = newest.and_then(name).unwrap_or_default();
        Err(CliError::new(format!(
            "{shown} is not the newest usable checkpoint of its run, which is {}: to resume from it would drop the steps after it",
            newest.to_string_lossy()
        ))
        .hint(format!(
            "keep both, and continue from it in a new run: emberlm train --resume {} --out NEW",
            shell_path(&self.given)
        )))
    }
}

/// The folder of the checkpoint of a step, for a path that ends with the step's number.
fn numbered(path: &Path) -> Option<PathBuf> {
    let step = path.file_name()?.to_str()?.parse().ok()?;
    let is_missing = !path.exists() && path.parent()?.ends_with(FOLDER);
    is_missing.then(|| path.with_file_name(folder_name(step)))
}
