//! `emberlm watch`: serves a live page of runs.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use emberlm_serve::watch::{RunDescription, Runs, WatchedRun, router};
use emberlm_serve::{Hosts, Server, ServerError};
use emberlm_trainer::events::EVENTS_FILE;
use emberlm_trainer::metrics::built_in;
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use crate::commands::sweep::SWEEP_FILE;
use crate::console;
use crate::error::CliError;
use crate::examples;
use crate::output::print;
use crate::run_folders::{self, is_run, names, runs_below};
use crate::run_history::Status;
use crate::run_labels::RunLabels;
use crate::{run_settings, signals};

/// Arguments of `watch`.
#[derive(Debug, Args)]
#[command(after_help = examples::WATCH)]
pub struct WatchArgs {
    /// Runs, or folders of runs and sweeps
    #[arg(value_name = "RUN", default_value = "runs")]
    pub runs: Vec<PathBuf>,
    /// The port to listen on; 0 for any free port
    #[arg(long, default_value_t = 8081)]
    pub port: u16,
    /// The address to listen on: by default only this machine can see the page
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub host: IpAddr,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub allowed: AllowedHosts,
}

/// The names that a server is reached by.
#[derive(Debug, Args)]
pub struct AllowedHosts {
    /// An accepted host name in the Host and Origin headers, such as a reverse proxy's; * for any
    #[arg(long = "allowed-host", value_name = "HOST")]
    pub names: Vec<String>,
}

/// Time limit for open requests at exit.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves the page until the program is stopped.
pub fn run(args: WatchArgs) -> Result<(), CliError> {
    for path in &args.runs {
        if !path.exists() {
            return Err(run_folders::missing(path));
        }
        if path.is_file() {
            return Err(run_folders::not_a_folder(path));
        }
    }
    let hosts = Hosts::new(args.host, &args.allowed.names);
    let server = Server::bind(args.host, args.port).map_err(|error| cannot_listen(&error))?;
    let (sender, stop) = oneshot::channel::<()>();
    let mut sender = Some(sender);
    signals::listen(move || drop(sender.take()))?;
    print(&format!("http://{}\n", server.address()))?;
    console::note("press Ctrl-C to stop the server");
    let folders = args.runs;
    if watched(&folders).is_empty() {
        let shown: Vec<String> = folders
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let shown = shown.join(", ");
        console::note(format_args!(
            "There is no run in {shown} yet: runs appear on the page when they begin"
        ));
    }
    let metrics = serde_json::to_value(built_in());
    let metrics = metrics.map_err(|error| {
        CliError::new(format!("the metrics cannot be written as JSON: {error}"))
    })?;
    let router = router(Runs {
        metrics,
        find: Box::new(move || watched(&folders)),
        describe,
        settings,
        events: EVENTS_FILE,
    });
    server
        .run(router, hosts, stop, DRAIN)
        .map_err(|error| CliError::new(error.to_string()))
}

fn describe(run: &Path) -> RunDescription {
    // Unreadable labels are left out here; `emberlm runs` reports them.
    let labels = RunLabels::read(run).unwrap_or_default();
    RunDescription {
        status: Status::of(run).name().to_owned(),
        tags: labels.tags.into_iter().collect(),
        note: labels.note,
    }
}

fn settings(run: &Path) -> Map<String, Value> {
    let settings = run_settings::read(run).unwrap_or_default().into_iter();
    let json = |(key, value)| Some((key, serde_json::to_value(value).ok()?));
    settings.filter_map(json).collect()
}

/// The name of the sweep that a run belongs to. A run's folder is inside its sweep's folder.
fn sweep_of(run: &Path) -> Option<String> {
    let folder = run.canonicalize().ok()?;
    let parent = folder.parent()?;
    let name = parent.file_name()?.to_string_lossy().into_owned();
    parent.join(SWEEP_FILE).exists().then_some(name)
}

/// The error for a server that cannot listen, usually because another program uses the port.
pub fn cannot_listen(error: &ServerError) -> CliError {
    CliError::new(error.to_string()).hint("choose another port; --port 0 selects a free one")
}

/// The runs currently in the folders.
fn watched(folders: &[PathBuf]) -> Vec<WatchedRun> {
    let mut found: Vec<PathBuf> = Vec::new();
    for folder in folders {
        let inner = match is_run(folder) {
            true => vec![folder.clone()],
            // A folder that is no longer readable shows no runs.
            false => runs_below(folder).unwrap_or_default(),
        };
        let new = |run: &PathBuf| !found.contains(run);
        let inner: Vec<PathBuf> = inner.into_iter().filter(new).collect();
        found.extend(inner);
    }
    let names = names(&found);
    let named = names.into_iter().zip(found);
    named
        .map(|(name, folder)| WatchedRun {
            name,
            sweep: sweep_of(&folder),
            folder,
        })
        .collect()
}
