//! A live page of runs: what their events say, as they are written.
//!
//! | path | what is answered |
//! |---|---|
//! | `/` | the page; its scripts and styles beside it |
//! | `/api/runs` | `{"runs": [{"name", "status"}], "machine": {"processor", "memory_used", "memory"}}` |
//! | `/api/events?run=NAME&file=F&offset=N` | `{"file", "offset", "more", "events": […]}`: what came after |
//!
//! A run is asked for by a name that `/api/runs` gives: no path comes from a client.

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
use crate::tail::{self, Place};

/// A run that can be watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedRun {
    /// What it is called on the page and asked for by.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
}

/// What knows the runs.
pub struct Runs {
    /// Looks for them, anew for each question: a sweep makes more as it goes.
    pub find: Box<dyn Fn() -> Vec<WatchedRun> + Send + Sync>,
    /// Where the run in a folder stands (running, finished, …).
    pub status: fn(&Path) -> String,
    /// The name of the file of its events, which may not be there yet.
    pub events: &'static str,
}

struct Watch {
    runs: Runs,
    machine: Machine,
}

/// The page and what it asks for.
pub fn router(runs: Runs) -> Router {
    let machine = Machine::new();
    let asset = |kind, content| get(move || async move { Asset { kind, content } });
    const SCRIPT: &str = "text/javascript; charset=utf-8";
    Router::new()
        .route(
            "/",
            asset(
                "text/html; charset=utf-8",
                include_str!("watch/page/index.html"),
            ),
        )
        .route(
            "/base.css",
            asset(
                "text/css; charset=utf-8",
                include_str!("watch/page/base.css"),
            ),
        )
        .route(
            "/watch.css",
            asset(
                "text/css; charset=utf-8",
                include_str!("watch/page/watch.css"),
            ),
        )
        .route(
            "/watch.js",
            asset(SCRIPT, include_str!("watch/page/watch.js")),
        )
        .route(
            "/chart.js",
            asset(SCRIPT, include_str!("watch/page/chart.js")),
        )
        .route(
            "/runs.js",
            asset(SCRIPT, include_str!("watch/page/runs.js")),
        )
        .route("/api/runs", get(listed))
        .route("/api/events", get(events))
        .with_state(Arc::new(Watch { runs, machine }))
}

/// What `/api/runs` answers.
#[derive(Serialize)]
struct Answer {
    runs: Vec<Listed>,
    machine: crate::machine::Use,
}

#[derive(Serialize)]
struct Listed {
    name: String,
    status: String,
}

async fn listed(State(watch): State<Arc<Watch>>) -> Json<Answer> {
    let found = (watch.runs.find)().into_iter();
    let listed = |WatchedRun { name, folder }| Listed {
        name,
        status: (watch.runs.status)(&folder),
    };
    Json(Answer {
        runs: found.map(listed).collect(),
        machine: watch.machine.now(),
    })
}

#[derive(Deserialize)]
struct Asked {
    run: String,
    #[serde(default)]
    file: String,
    #[serde(default)]
    offset: u64,
}

/// What `/api/events` answers.
#[derive(Serialize)]
struct Events {
    file: String,
    offset: u64,
    more: bool,
    events: Vec<Value>,
}

async fn events(State(watch): State<Arc<Watch>>, Query(asked): Query<Asked>) -> Response {
    let mut found = (watch.runs.find)().into_iter();
    let Some(run) = found.find(|run| run.name == asked.run) else {
        return failed(StatusCode::NOT_FOUND, "there is no such run");
    };
    let from = Place {
        file: asked.file,
        offset: asked.offset,
    };
    match tail::read_after(&run.folder.join(watch.runs.events), &from) {
        Ok(tail) => Json(Events {
            file: tail.place.file,
            offset: tail.place.offset,
            more: tail.more,
            events: tail.lines,
        })
        .into_response(),
        // It has only been begun.
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
