//! Everything that is known about one run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use emberlm_trainer::ancestry::{Ancestor, Ancestry};
use emberlm_trainer::events::{self, EVENTS_FILE, Event};
use serde::Serialize;

use super::readings::readings;
use crate::error::{CliError, warn};
use crate::run_folders::{check_run, names};
use crate::run_history::{History, Status};
use crate::run_labels::RunLabels;
use crate::run_sessions::{RunSessions, Session};
use crate::run_settings::{self, RunSettings};

/// A run with its configuration, its results and its sessions.
#[derive(Debug, Serialize)]
pub struct RunDetails {
    pub name: String,
    pub path: PathBuf,
    pub status: Status,
    pub tags: BTreeSet<String>,
    pub note: String,
    pub step: usize,
    pub steps: Option<usize>,
    pub tokens: Option<u64>,
    /// Training time.
    pub seconds: Option<f64>,
    /// Time of the last event, in Unix seconds.
    pub time: Option<f64>,
    pub best_validation_loss: Option<f64>,
    pub best_step: Option<usize>,
    pub metrics: Vec<MetricValue>,
    /// The runs that it descends from: first the one that it was forked from.
    pub ancestors: Vec<Ancestor>,
    pub settings: RunSettings,
    pub sessions: Vec<Session>,
    pub samples: Vec<Sample>,
    #[serde(skip)]
    pub history: History,
}

/// The last and the best value of a metric in one phase.
#[derive(Debug, Serialize)]
pub struct MetricValue {
    pub name: String,
    pub phase: &'static str,
    pub last: Option<f64>,
    /// The best value by the metric's direction, if it has one.
    pub best: Option<f64>,
    /// Title and values as they are displayed.
    #[serde(skip)]
    pub shown: [String; 3],
}

/// A text that the model generated.
#[derive(Debug, Serialize)]
pub struct Sample {
    pub step: usize,
    pub text: String,
}

impl RunDetails {
    /// Reads a run. Files other than its events are optional.
    ///
    /// # Errors
    /// Returns an error if the folder is not a run, or its events or its configuration cannot be read.
    pub fn read(run: &Path) -> Result<Self, CliError> {
        check_run(run)?;
        let events = match run.join(EVENTS_FILE).exists() {
            true => events::read(run)?.events,
            false => Vec::new(),
        };
        let samples = events.iter().filter_map(|event| match event {
            Event::Sample { step, text } => Some(Sample {
                step: *step,
                text: text.clone(),
            }),
            _ => None,
        });
        let samples: Vec<Sample> = samples.collect();
        let begun: Vec<Session> = events.iter().filter_map(begun).collect();
        let history = match events.is_empty() {
            true => History::default(),
            false => History::read(run)?,
        };
        history.damage.iter().for_each(|damage| warn(damage));
        let or_warn = |error: CliError| warn(error.message());
        let labels = RunLabels::read(run).map_err(or_warn).unwrap_or_default();
        let recorded = RunSessions::read(run).map_err(or_warn).unwrap_or_default();
        let ancestry = Ancestry::read(run).map_err(|error| warn(&error.to_string()));
        let settings = run_settings::read(run)?;
        let planned = settings
            .get("train.steps")
            .and_then(toml::Value::as_integer);
        let best = history.best();
        Ok(Self {
            name: names(&[run.to_owned()]).pop().unwrap_or_default(),
            path: run.to_owned(),
            status: history.status(run),
            tags: labels.tags,
            note: labels.note,
            step: history.step(),
            steps: history
                .planned
                .or_else(|| planned.and_then(|steps| usize::try_from(steps).ok())),
            tokens: history.steps.last().map(|step| step.tokens),
            seconds: history.paces.last().map(|pace| pace.seconds),
            time: history.time,
            best_validation_loss: best.map(|best| best.loss),
            best_step: best.map(|best| best.step),
            metrics: metrics(&history),
            ancestors: ancestry.unwrap_or_default().ancestors,
            settings,
            sessions: match recorded.sessions.is_empty() {
                true => begun,
                false => recorded.sessions,
            },
            samples,
            history,
        })
    }
}

/// The session of a start, as far as its event has it.
fn begun(event: &Event) -> Option<Session> {
    match event {
        Event::Begun {
            time,
            step,
            backend,
            version,
            ..
        } => Some(Session {
            time: *time,
            step: *step,
            version: version.clone(),
            backend: backend.clone(),
            command: None,
            machine: Default::default(),
        }),
        _ => None,
    }
}

fn metrics(history: &History) -> Vec<MetricValue> {
    let all = readings(std::slice::from_ref(history)).into_iter();
    all.map(|readings| {
        let [last, best] = [&readings.last, &readings.best].map(|of| of.first().copied().flatten());
        MetricValue {
            shown: [readings.title(), readings.shown(last), readings.shown(best)],
            name: readings.name,
            phase: readings.phase,
            last,
            best,
        }
    })
    .collect()
}
