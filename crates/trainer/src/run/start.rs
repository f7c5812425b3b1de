//! The start of a run: new, resumed or forked.

use std::path::{Path, PathBuf};

use super::Fork;
use crate::checkpoint::Checkpoint;
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::report::events::{Damage, EventLog};
use crate::run::folder::RunFolder;

/// The start of a run.
pub enum RunStart {
    /// In a directory without a run.
    New(PathBuf),
    /// In the directory of a stopped run, at its checkpoint, if it has one.
    Resumed(RunFolder, Option<Box<Checkpoint>>),
    /// As a rank other than 0, in the directory of a stopped run that rank 0 has locked.
    Joined(PathBuf, Option<Box<Checkpoint>>),
    /// In a new directory, at a checkpoint of another run.
    Forked(Fork),
}

impl<P: Into<PathBuf>> From<P> for RunStart {
    /// A new run in this directory.
    fn from(path: P) -> Self {
        Self::New(path.into())
    }
}

impl RunStart {
    /// The run's directory.
    pub fn path(&self) -> &Path {
        match self {
            Self::New(path) => path,
            Self::Resumed(folder, _) => folder.path(),
            Self::Joined(path, _) => path,
            Self::Forked(fork) => fork.path(),
        }
    }

    /// The checkpoint that the run continues from.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        match self {
            Self::New(_) => None,
            Self::Resumed(_, checkpoint) | Self::Joined(_, checkpoint) => checkpoint.as_deref(),
            Self::Forked(fork) => Some(fork.checkpoint()),
        }
    }

    /// The fork, if the run is one that has not started yet.
    pub(crate) fn fork(&self) -> Option<&Fork> {
        match self {
            Self::Forked(fork) => Some(fork),
            Self::New(_) | Self::Resumed(..) | Self::Joined(..) => None,
        }
    }

    /// Opens the run's directory with its configuration and log, for a run at `step`.
    pub(super) fn open_folder(
        self,
        config: &RunConfig,
        text: &str,
        step: usize,
    ) -> Result<(RunFolder, EventLog, Damage), TrainError> {
        Ok(match self {
            Self::Forked(fork) => fork.create(text, config)?,
            Self::New(run) => {
                let folder = RunFolder::create(&run, text)?;
                let log = EventLog::create(&run)?;
                (folder, log, Damage::default())
            }
            // Only rank 0 writes into the directory.
            Self::Joined(path, _) => return Err(TrainError::NoRun { path }),
            Self::Resumed(folder, _) => {
                folder.write_config(text)?;
                let (log, damage) = EventLog::resume(folder.path(), step)?;
                (folder, log, damage)
            }
        })
    }
}
