//! A run in the list of runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};
use emberlm_trainer::RunFolder;
use emberlm_trainer::ancestry::{Ancestor, Ancestry};
use emberlm_trainer::events::EVENTS_FILE;
use emberlm_trainer::folder::CONFIG_FILE;
use serde::Serialize;

use crate::error::warn;
use crate::run_history::{History, Status};
use crate::run_labels::RunLabels;

/// A listed run.
#[derive(Debug, Serialize)]
pub struct ListedRun {
    /// The path relative to the listed folder.
    pub name: String,
    pub path: PathBuf,
    pub status: Option<Status>,
    pub tags: BTreeSet<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The reason that the run's events cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub step: usize,
    pub steps: Option<usize>,
    pub tokens: Option<u64>,
    /// The last logged training loss.
    pub loss: Option<f64>,
    pub best_validation_loss: Option<f64>,
    pub best_step: Option<usize>,
    pub tokens_per_second: Option<f64>,
    /// Time of the last event, in Unix seconds.
    pub time: Option<f64>,
    /// The run that it was forked from, with the step and the changed settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<Ancestor>,
    /// The runs that the parent descends from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<Ancestor>,
}

impl ListedRun {
    /// Reads the run at `path` below the listed folder `dir`. What cannot be read is warned of.
    pub fn read(dir: &Path, path: PathBuf) -> Self {
        let name = path
            .strip_prefix(dir)
            .unwrap_or(&path)
            .display()
            .to_string();
        let labels = RunLabels::read(&path).unwrap_or_else(|error| {
            warn(error.message());
            RunLabels::default()
        });
        let read = match path.join(EVENTS_FILE).exists() {
            true => History::read(&path),
            false => Ok(History::default()),
        };
        let (history, error) = match read {
            Ok(history) => (history, None),
            Err(error) => (History::default(), Some(error.message().to_owned())),
        };
        history.damage.iter().for_each(|damage| warn(damage));
        let mut ancestors = Ancestry::read(&path).map_or_else(
            |error| {
                warn(&error.to_string());
                Vec::new()
            },
            |ancestry| ancestry.ancestors,
        );
        let earlier = ancestors.split_off(ancestors.len().min(1));
        let last = history.steps.last();
        let best = history.best();
        let status = match &error {
            Some(_) if !RunFolder::is_held(&path) => None,
            _ => Some(history.status(&path)),
        };
        Self {
            name,
            status,
            tags: labels.tags,
            note: labels.note,
            error,
            step: history.step(),
            steps: history.planned.or_else(|| planned(&path)),
            tokens: last.map(|step| step.tokens),
            loss: last.map(|step| step.loss),
            best_validation_loss: best.map(|best| best.loss),
            best_step: best.map(|best| best.step),
            tokens_per_second: history.paces.last().map(|pace| pace.tokens_per_second),
            time: history.time.or_else(|| changed(&path)),
            parent: ancestors.pop(),
            ancestors: earlier,
            path,
        }
    }
}

/// The total number of steps from the run's configuration.
fn planned(run: &Path) -> Option<usize> {
    let text = read_text(&run.join(CONFIG_FILE), DESCRIPTION_LIMIT).ok()?;
    let config: toml::Table = toml::from_str(&text).ok()?;
    let steps = config.get("train")?.get("steps")?.as_integer()?;
    usize::try_from(steps).ok()
}

/// Modification time of the run's events, or else of its folder.
fn changed(run: &Path) -> Option<f64> {
    let time = |path: &Path| -> Option<SystemTime> { path.metadata().ok()?.modified().ok() };
    let time = time(&run.join(EVENTS_FILE)).or_else(|| time(run))?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
}
