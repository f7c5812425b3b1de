//! The storm: concurrent clients, half of which disconnect early and some of which send malformed requests. The
//! server must answer all others as it answers a single client, must release the slots of clients that left,
//! and must not leak memory.
//!
//! Map: `cases` has the requests with the answers to a single client, `malformed` the malformed requests,
//! `client` the loop of a client, `footprint` the server's memory during the run, and `report` the printed
//! report with the failures.

pub mod cases;
mod client;
mod footprint;
pub mod malformed;
mod report;

use std::{
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

pub use self::report::Report;
use self::{cases::Case, client::Client, footprint::Footprint, malformed::Malformed};
use crate::{error::Error, served::process::Server};

/// The time within which no request may be running after the last client has left.
const QUIET_WITHIN: Duration = Duration::from_secs(2);
/// The interval between readings of the server's memory.
const SAMPLED: Duration = Duration::from_millis(250);
/// The maximum number of printed failures.
const PRINTED: usize = 20;

/// The parameters of a storm.
#[derive(Clone, Debug)]
pub struct Storm {
    /// Concurrent clients.
    pub clients: usize,
    /// The server's slots. Further requests wait.
    pub slots: usize,
    /// The time during which clients send new requests.
    pub lasting: Duration,
    /// The seed of the random choices.
    pub seed: u64,
    /// Further arguments of `emberlm serve`.
    pub options: Vec<String>,
}

/// State shared by all clients.
#[derive(Debug)]
struct Shared<'a> {
    server: &'a Server,
    cases: &'a [Case],
    malformed_requests: Vec<Malformed>,
    over: AtomicBool,
    report: Mutex<Report>,
}

/// Starts a server of `model` and runs the storm.
///
/// # Errors
/// The server cannot be started or does not respond. Failures during the storm are part of the report.
pub fn run(binary: &Path, model: &Path, storm: &Storm) -> Result<Report, Error> {
    let numbers = [storm.slots, storm.clients].map(|number| number.to_string());
    let mut options = vec!["--slots", &numbers[0], "--max-queue", &numbers[1]];
    options.extend(storm.options.iter().map(String::as_str));
    let server = Server::start(binary, model, options)?;
    let cases = cases::of_one_client(&server)?;
    eprintln!(
        "{} requests of a single client; now {} clients for {:?}",
        cases.len(),
        storm.clients,
        storm.lasting
    );
    let before = server.open_files();
    let shared = Shared {
        server: &server,
        cases: &cases,
        malformed_requests: malformed::all(),
        over: AtomicBool::new(false),
        report: Mutex::default(),
    };
    let start = Instant::now();
    let footprint = thread::scope(|scope| {
        for number in 0..storm.clients {
            let client = Client::new(number, storm.seed);
            let shared = &shared;
            scope.spawn(move || client.run(shared));
        }
        let footprint = record_memory(&server, start, storm.lasting);
        shared.over.store(true, Ordering::Relaxed);
        footprint
    });
    let mut report = shared
        .report
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    report.seconds = start.elapsed().as_secs_f64();
    report.memory(footprint);
    if let Err(error) = check_recovery(&server, &cases, storm, before, &mut report) {
        report.failed(format!("after the storm: {error}"));
    }
    if let Err(error) = server.stop() {
        report.failed(error.to_string());
    }
    Ok(report)
}

/// Checks that the server has returned to its initial state. Returns an error if it does not respond.
fn check_recovery(
    server: &Server,
    cases: &[Case],
    storm: &Storm,
    before: Option<usize>,
    report: &mut Report,
) -> Result<(), Error> {
    match server.quiet(storm.slots, QUIET_WITHIN)? {
        Ok(after) => report.quiet_seconds = Some(after.as_secs_f64()),
        Err(stuck) => report.failed(stuck),
    }
    for case in cases {
        if let Err(wrong) = case.check(server) {
            report.failed(format!("after the storm: {wrong}"));
        }
    }
    report.files(before, server.open_files());
    report.generated = server.metrics()?.get("emberlm_generated_tokens_total");
    Ok(())
}

/// Records the server's memory until the storm is over.
fn record_memory(server: &Server, start: Instant, lasting: Duration) -> Footprint {
    let mut footprint = Footprint::default();
    let mut said = 0;
    while start.elapsed() < lasting {
        footprint.add(server.resident());
        thread::sleep(SAMPLED);
        let minutes = start.elapsed().as_secs() / 60;
        if minutes > said {
            said = minutes;
            eprintln!("{minutes} min: {:.0} MiB", footprint.last_mib());
        }
    }
    footprint
}

impl Shared<'_> {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Updates the report.
    fn record(&self, note: impl FnOnce(&mut Report)) {
        note(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
