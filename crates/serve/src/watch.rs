//! The live page of runs. It shows events as they are written.
//!
//! | path | answer |
//! |---|---|
//! | `/` | the page; its scripts and styles beside it |
//! | `/api/runs` | `{"runs": [{"name", "sweep", "status", "tags", "note"}], "machine": {"processor", "memory_used", "memory"}}` |
//! | `/api/metrics` | `[{"name", "title", "unit", "direction", "aggregation", "phase", "scale"}]`: the metrics of every run |
//! | `/api/settings?run=NAME` | `{"settings": {"train.steps": 100, …}}` |
//! | `/api/events?run=NAME&file=F&offset=N` | `{"file", "offset", "more", "events": […]}`: the events after the offset |
//!
//! Clients select a run by a name from `/api/runs`, never by a path.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::asset::Asset;
use crate::machine::Machine;
use crate::tail::{self, FilePosition};

/// A run that can be watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedRun {
    /// The name on the page and in requests.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// The name of its sweep.
    pub sweep: Option<String>,
}

/// The state of a run and its user's labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RunDescription {
    /// The status, such as running or finished.
    pub status: String,
    /// Tags.
    pub tags: Vec<String>,
    /// A note, or an empty text.
    pub note: String,
}

/// The source of the runs to watch.
pub struct Runs {
    /// Finds the runs. Called for each request, because a sweep adds runs while it trains.
    pub find: Box<dyn Fn() -> Vec<WatchedRun> + Send + Sync>,
    /// Describes the run in a folder.
    pub describe: fn(&Path) -> RunDescription,
    /// The settings of the run in a folder by their keys, such as `train.steps`; empty before the run has any.
    pub settings: fn(&Path) -> serde_json::Map<String, Value>,
    /// The metrics of every run, as JSON. A run's `begun` event declares additional ones.
    pub metrics: Value,
    /// The name of the event file, which may not exist yet.
    pub events: &'static str,
}

struct Watch {
    runs: Runs,
    machine: Machine,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// A file of the page: its name, kind and content.
macro_rules! file {
    ($name:literal, $kind:expr) => {
        (
            concat!("/", $name),
            $kind,
            include_str!(concat!("watch/page/", $name)),
        )
    };
}

/// The page's files, each with its path and kind.
const FILES: [(&str, &str, &str); 11] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("watch/page/index.html"),
    ),
    file!("base.css", STYLE),
    file!("watch.css", STYLE),
    file!("watch.js", SCRIPT),
    file!("chart.js", SCRIPT),
    file!("limits.js", SCRIPT),
    file!("groups.js", SCRIPT),
    file!("norms.js", SCRIPT),
    file!("runs.js", SCRIPT),
    file!("style.js", SCRIPT),
    file!("table.js", SCRIPT),
];

/// The page and its API.
pub fn router(runs: Runs) -> Router {
    let machine = Machine::new();
    let files = FILES
        .into_iter()
        .fold(Router::new(), |router, (path, kind, content)| {
            router.route(path, get(move || async move { Asset { kind, content } }))
        });
    files
        .route("/api/runs", get(listed))
        .route("/api/metrics", get(metrics))
        .route("/api/settings", get(settings))
        .route("/api/events", get(events))
        .with_state(Arc::new(Watch { runs, machine }))
}

/// The answer of `/api/runs`.
#[derive(Serialize)]
struct Answer {
    runs: Vec<Listed>,
    machine: crate::machine::MachineUsage,
}

#[derive(Serialize)]
struct Listed {
    name: String,
    sweep: Option<String>,
    #[serde(flatten)]
    description: RunDescription,
}

async fn listed(State(watch): State<Arc<Watch>>) -> Json<Answer> {
    let found = (watch.runs.find)().into_iter();
    let listed = |run: WatchedRun| Listed {
        description: (watch.runs.describe)(&run.folder),
        name: run.name,
        sweep: run.sweep,
    };
    Json(Answer {
        runs: found.map(listed).collect(),
        machine: watch.machine.now(),
    })
}

impl Watch {
    fn run(&self, name: &str) -> Option<WatchedRun> {
        (self.runs.find)().into_iter().find(|run| run.name == name)
    }
}

#[derive(Deserialize)]
struct RunQuery {
    run: String,
}

async fn settings(State(watch): State<Arc<Watch>>, Query(query): Query<RunQuery>) -> Response {
    match watch.run(&query.run) {
        Some(run) => {
            let settings = (watch.runs.settings)(&run.folder);
            Json(serde_json::json!({ "settings": settings })).into_response()
        }
        None => failed(StatusCode::NOT_FOUND, NO_RUN),
    }
}

const NO_RUN: &str = "there is no such run";

async fn metrics(State(watch): State<Arc<Watch>>) -> Json<Value> {
    Json(watch.runs.metrics.clone())
}

#[derive(Deserialize)]
struct EventsQuery {
    run: String,
    #[serde(default)]
    file: String,
    #[serde(default)]
    offset: u64,
}

/// The answer of `/api/events`.
#[derive(Serialize)]
struct Events {
    file: String,
    offset: u64,
    more: bool,
    events: Vec<Value>,
}

async fn events(State(watch): State<Arc<Watch>>, Query(query): Query<EventsQuery>) -> Response {
    let Some(run) = watch.run(&query.run) else {
        return failed(StatusCode::NOT_FOUND, NO_RUN);
    };
    let from = FilePosition {
        file: query.file,
        offset: query.offset,
    };
    match tail::read_after(&run.folder.join(watch.runs.events), &from) {
        Ok(tail) => Json(Events {
            file: tail.place.file,
            offset: tail.place.offset,
            more: tail.more,
            events: tail.lines,
        })
        .into_response(),
        // The run has no events yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Json(Events {
            file: String::new(),
            offset: 0,
            more: false,
            events: Vec::new(),
        })
        .into_response(),
        Err(error) => failed(
            StatusCode::INTERNAL_SERVER_ERROR,
            &format!("its events cannot be read: {error}"),
        ),
    }
}

fn failed(status: StatusCode, message: &str) -> Response {
    (status, Json(serde_json::json!({ "error": message }))).into_response()
}
