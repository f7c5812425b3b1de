//! Runs, and groups of runs that are drawn as one.

use std::path::PathBuf;

use crate::run_history::History;
use crate::run_model::ModelSize;
use crate::run_settings::RunSettings;

/// A run and its display name.
#[derive(Clone, Debug)]
pub struct NamedRun {
    pub name: String,
    pub folder: PathBuf,
    pub history: History,
    /// The settings, if they were read.
    pub settings: RunSettings,
    /// The size of the model, if it was read.
    pub size: Option<ModelSize>,
}

impl NamedRun {
    /// Creates a run without settings and size.
    pub fn new(name: String, folder: PathBuf, history: History) -> Self {
        Self {
            name,
            folder,
            history,
            settings: RunSettings::new(),
            size: None,
        }
    }
}

/// Runs that are drawn as one curve.
#[derive(Clone, Debug)]
pub struct Group {
    pub name: String,
    pub runs: Vec<NamedRun>,
    /// True if the curve is a mean over the runs.
    pub is_mean: bool,
}

impl Group {
    /// The group of a run that is drawn as it is.
    pub fn single(run: NamedRun) -> Self {
        Self {
            name: run.name.clone(),
            runs: vec![run],
            is_mean: false,
        }
    }

    /// The group's name in the legend.
    pub fn label(&self) -> String {
        match (self.is_mean, self.runs.len()) {
            (false, _) => self.name.clone(),
            (true, 1) => format!("{} (1 run)", self.name),
            (true, count) => format!("{} ({count} runs)", self.name),
        }
    }
}
