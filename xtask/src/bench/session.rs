//! The state of a benchmark: its record, and the workspace that it measures.

use std::{
    fs,
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
};

use cargo_metadata::Metadata;
use emberlm_system::measure::{Comparison, Contender, Ratio, Record};

use crate::{error::Error, workspace};

/// A running benchmark.
pub struct Session {
    /// The workspace.
    pub metadata: Metadata,
    /// The results so far.
    pub record: Record,
    rounds: Option<NonZero<usize>>,
}

impl Session {
    /// A session without results. `rounds` is the number that the user asked for.
    pub fn new(rounds: Option<NonZero<usize>>) -> Result<Self, Error> {
        let mut describe = Command::new("git");
        describe.args(["describe", "--always", "--dirty", "--exclude=*"]);
        let commit = workspace::stdout(&mut describe).unwrap_or_else(|_| "unknown".to_owned());
        let words: Vec<String> = std::env::args().skip(1).collect();
        Ok(Self {
            metadata: workspace::metadata()?,
            record: Record::new(words.join(" "), commit.trim()),
            rounds,
        })
    }

    /// The rounds of comparisons: those that the user asked for, or `default`.
    pub fn rounds(&self, default: usize) -> usize {
        self.rounds.map_or(default, NonZero::get)
    }

    /// The root of the workspace.
    pub fn root(&self) -> PathBuf {
        self.metadata.workspace_root.clone().into()
    }

    /// A folder in the target folder, which is created.
    pub fn folder(&self, name: &str) -> Result<PathBuf, Error> {
        let folder: PathBuf = self.metadata.target_directory.join(name).into();
        fs::create_dir_all(&folder).map_err(Error::write(&folder))?;
        Ok(folder)
    }

    /// Runs every contender once per round, and records the comparison. Each round is printed.
    pub fn compare(
        &mut self,
        workload: impl Into<String>,
        ratio: Ratio,
        rounds: usize,
        contenders: Vec<Contender<'_, Error>>,
    ) -> Result<&Comparison, Error> {
        let report = |line: &str| eprintln!("{line}");
        let made = Comparison::interleaved(workload, ratio, rounds, contenders, report)?;
        self.record.comparisons.push(made);
        let last = self.record.comparisons.len() - 1;
        Ok(&self.record.comparisons[last])
    }
}

/// Removes a folder of an earlier run, if there is one.
pub fn remove(folder: &Path) -> Result<(), Error> {
    match folder.exists() {
        true => fs::remove_dir_all(folder).map_err(Error::write(folder)),
        false => Ok(()),
    }
}

/// The number of cores.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
