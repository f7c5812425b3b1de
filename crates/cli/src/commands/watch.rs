//! `emberlm watch`: a live page of runs.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use emberlm_serve::watch::{Runs, WatchedRun, router};
use emberlm_serve::{Hosts, Server, ServerError};
use emberlm_trainer::events::EVENTS_FILE;
use tokio::sync::oneshot;

use crate::console;
use crate::error::CliError;
use crate::output::print;
use crate::run_folders::{self, is_run, names, runs_below};
use crate::run_history::Status;
use crate::signals;

/// Arguments of `watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Runs, or folders of runs and sweeps
    #[arg(value_name = "RUN", default_value = "runs")]
    pub runs: Vec<PathBuf>,
    /// Where to listen; 0 for any port that is free
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
    /// A host name that requests may name and whose pages may ask, such as a reverse proxy's; * for any
    #[arg(long = "allowed-host", value_name = "HOST")]
    pub names: Vec<String>,
}

/// How long what is being answered may go on when the program is told to stop.
const DRAIN: Duration = Duration::from_secs(5);

/// Shows the page until the program is told to stop.
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
    console::note("Ctrl-C ends it");
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
    let router = router(Runs {
        find: Box::new(move || watched(&folders)),
        status: |run| Status::of(run).name().to_owned(),
        events: EVENTS_FILE,
    });
    server
        .run(router, hosts, stop, DRAIN)
        .map_err(|error| CliError::new(error.to_string()))
}

/// Another program has the port, mostly.
pub fn cannot_listen(error: &ServerError) -> CliError {
    CliError::new(error.to_string()).hint("choose another port: --port 0 takes any that is free")
}

/// The runs in the folders, as they are now.
fn watched(folders: &[PathBuf]) -> Vec<WatchedRun> {
    let mut found: Vec<PathBuf> = Vec::new();
    for folder in folders {
        let inner = match is_run(folder) {
            true => vec![folder.clone()],
            // What may not be read any more is shown no more.
            false => runs_below(folder).unwrap_or_default(),
        };
        let new = |run: &PathBuf| !found.contains(run);
        let inner: Vec<PathBuf> = inner.into_iter().filter(new).collect();
        found.extend(inner);
    }
    let names = names(&found);
    let named = names.into_iter().zip(found);
    named
        .map(|(name, folder)| WatchedRun { name, folder })
        .collect()
}
