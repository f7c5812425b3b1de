//! The storm: many clients at once, half of which leave in the middle, some of which send nonsense, and a server that
//! must answer all others as it answers a single one, forget those that left, and not grow.
//!
//! Map: `cases` are the requests with the answers to a single client, `malformed` the nonsense, `client` what each client
//! does, `footprint` the server's memory over the run, `report` the printed report and the failures.

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

/// The time after the last client has left until nothing may run any more.
const QUIET_WITHIN: Duration = Duration::from_secs(2);
/// Between two looks at the server's memory.
const SAMPLED: Duration = Duration::from_millis(250);
/// Failures that are printed; more are alike.
const TOLD: usize = 20;

/// The size of a storm.
#[derive(Clone, Debug)]
pub struct Storm {
    /// Clients at once.
    pub clients: usize,
    /// The server's slots; the others wait.
    pub slots: usize,
    /// For how long new requests are made.
    pub lasting: Duration,
    /// The seed of random choices.
    pub seed: u64,
    /// Further words for `emberlm serve`.
    pub options: Vec<String>,
}

/// The state shared by all clients.
#[derive(Debug)]
struct Shared<'a> {
    server: &'a Server,
    cases: &'a [Case],
    nonsense: Vec<Malformed>,
    over: AtomicBool,
    told: Mutex<Report>,
}

/// Starts a server of `model` and lets the storm loose on it.
///
/// # Errors
/// There is no server to be asked. What goes wrong in the storm is in the report.
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
        nonsense: malformed::all(),
        over: AtomicBool::new(false),
        told: Mutex::default(),
    };
    let start = Instant::now();
    let footprint = thread::scope(|scope| {
        for number in 0..storm.clients {
            let client = Client::new(number, storm.seed);
            let shared = &shared;
            scope.spawn(move || client.run(shared));
        }
        let footprint = watched(&server, start, storm.lasting);
        shared.over.store(true, Ordering::Relaxed);
        footprint
    });
    let mut report = shared
        .told
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    report.seconds = start.elapsed().as_secs_f64();
    report.memory(footprint);
    if let Err(error) = afterwards(&server, &cases, storm, before, &mut report) {
        report.failed(format!("after the storm: {error}"));
    }
    if let Err(error) = server.stop() {
        report.failed(error.to_string());
    }
    Ok(report)
}

/// Returns true if the server is in its initial state again; an error if it does not answer.
fn afterwards(
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

/// The server's memory until the storm is over.
fn watched(server: &Server, start: Instant, lasting: Duration) -> Footprint {
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

    /// Notes something in the report.
    fn tell(&self, note: impl FnOnce(&mut Report)) {
        note(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
