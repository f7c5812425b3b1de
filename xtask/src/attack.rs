//! `cargo xtask attack`: runs hostile clients and well-behaved clients against a real server on this machine.
//!
//! Map: `kinds` lists the attacks that were written by hand, `malformed` the malformed requests, and `described`
//! generates the requests to each operation of the server's OpenAPI description. `hostile` runs one client of an
//! attack, `polite` is the well-behaved client, whose requests are in `cases`, `health` measures the time of
//! `/health`, `footprint` the growth of the server's memory, and `report` prints the table and the verdict.
//!
//! The attacks run one after the other. During an attack each well-behaved client must receive the answers that
//! a single client receives, within a time limit, and `/health` must answer. The server's memory must stay below
//! a limit, which `prlimit` also enforces. After the attack all slots must be free. In a storm, which repeats
//! everyday requests, memory and open files must not grow either.

mod cases;
mod described;
mod footprint;
mod health;
mod hostile;
mod kinds;
mod malformed;
mod polite;
mod report;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use self::{
    cases::Case,
    footprint::Footprint,
    kinds::{Attack, Means},
    report::Round,
};
use crate::{
    bench,
    error::Error,
    python::absolute,
    served::{process::Server, small_model},
    workspace,
};

/// The server's `--max-queue`.
const QUEUE: usize = 64;
/// The interval between readings of the server's memory.
const SAMPLED: Duration = Duration::from_millis(100);
/// The time within which all slots must be free after a storm, whose clients have disconnected.
const QUIET_WITHIN: Duration = Duration::from_secs(2);

/// Arguments of `cargo xtask attack`.
#[derive(Clone, Debug, clap::Args)]
pub struct AttackArgs {
    /// Attack this binary instead of building the release binary.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Serve this run or Hugging Face directory instead of a small model that is trained in seconds.
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// The server's slots, by default few enough for the attackers to occupy all of them.
    #[arg(long, value_name = "N", default_value_t = 8)]
    slots: usize,
    /// Total duration of all attacks, in seconds. The attacks on operations last until each request was sent.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Memory limit of the server and its child processes, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    memory: u64,
    /// The server's time limit for a request, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    timeout: u64,
    /// Seconds after which a missing answer to a well-behaved client is a failure [default: twice --timeout]
    #[arg(long, value_name = "SECONDS")]
    patience: Option<u64>,
    /// Further arguments of `emberlm serve`.
    #[arg(last = true, value_name = "SERVE ARGS")]
    options: Vec<String>,
    /// Run only the attacks whose names contain this (may be repeated).
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
}

impl AttackArgs {
    /// A storm on a server of `model`, whose requests may take a minute.
    pub fn storm(binary: &Path, model: &Path, seconds: u64) -> Self {
        Self {
            binary: Some(binary.to_owned()),
            model: Some(model.to_owned()),
            slots: 16,
            seconds,
            memory: 2048,
            timeout: 60,
            patience: None,
            options: Vec::new(),
            only: vec![kinds::STORM.to_owned()],
        }
    }
}

/// State shared by the clients of one attack.
struct AttackRun<'a> {
    server: &'a Server,
    slots: usize,
    cases: &'a [Case],
    attack: &'a Attack,
    patience: Duration,
    over: AtomicBool,
    round: Mutex<Round>,
}

/// Creates a model, runs all attacks and prints the table. Fails if the server or a well-behaved client was
/// harmed.
pub fn run(args: &AttackArgs) -> Result<ExitCode, Error> {
    let metadata = workspace::metadata()?;
    let binary = match &args.binary {
        Some(binary) => absolute(binary)?,
        None => bench::release(&metadata)?,
    };
    let folder = metadata.target_directory.join("attack");
    let model = match &args.model {
        Some(model) => absolute(model)?,
        None => small_model::make(&binary, folder.as_std_path())?,
    };
    let rounds = run_all(args, &binary, &model)?;
    print!("{}", report::table(&rounds));
    Ok(match rounds.iter().all(Round::is_good) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Runs the attacks on one server. Starts a new server after an attack that ended it.
fn run_all(args: &AttackArgs, binary: &Path, model: &Path) -> Result<Vec<Round>, Error> {
    let numbers = [args.slots as u64, QUEUE as u64, args.timeout].map(|number| number.to_string());
    let [slots, queue, timeout] = &numbers;
    let mut options = vec!["--slots", slots, "--max-queue", queue, "--timeout", timeout];
    // The small model has no chat template.
    options.extend(["--chat-template", "chatml"]);
    options.extend(args.options.iter().map(String::as_str));
    let limit = args.memory << 20;
    let start = || Server::start_within(limit, binary, model, options.iter().copied());
    let mut server = start()?;
    let mut attacks = kinds::all(&server.model);
    attacks.extend(kinds::of_description(&server)?);
    if !args.only.is_empty() {
        attacks.retain(|attack| args.only.iter().any(|only| attack.name.contains(only)));
    }
    let cases = cases::of_one_client(&server)?;
    let lasting =
        Duration::from_secs(args.seconds) / u32::try_from(attacks.len()).unwrap_or(1).max(1);
    let patience = args.patience.unwrap_or(2 * args.timeout);
    let mut rounds = Vec::new();
    for attack in &attacks {
        let attack_run = AttackRun {
            server: &server,
            slots: args.slots,
            cases: &cases,
            attack,
            patience: Duration::from_secs(patience),
            over: AtomicBool::new(false),
            round: Mutex::new(Round::new(&attack.name)),
        };
        let open_files = server.open_files();
        let mut round = attack_run.run(lasting, limit);
        let quiet_within = match attack.is_storm() {
            true => QUIET_WITHIN,
            false => Duration::from_secs(args.timeout + 5),
        };
        if let Err(gone) = attack_run.check_recovery(&mut round, quiet_within) {
            round.failed(format!("the server is gone: {gone}"));
        }
        if attack.is_storm() {
            round.files(open_files, server.open_files());
        }
        eprintln!("{} {}", round.row(), round.at());
        if round.is_gone() {
            server = start()?;
        }
        rounds.push(round);
    }
    if let Err(error) = server.stop()
        && let Some(round) = rounds.last_mut()
    {
        round.failed(error.to_string());
    }
    Ok(rounds)
}

impl AttackRun<'_> {
    /// Starts the clients and records the server's peak memory.
    fn run(&self, lasting: Duration, limit: u64) -> Round {
        // Resets the peak.
        self.server.peak_of_all();
        let before = self.server.peak_of_all();
        let start = Instant::now();
        let (mut most, mut at) = (before, String::new());
        let mut footprint = Footprint::default();
        thread::scope(|scope| {
            for number in 0..self.attack.clients {
                scope.spawn(move || hostile::run(self, number));
            }
            for number in 0..self.attack.well_behaved {
                scope.spawn(move || polite::run(self, number));
            }
            scope.spawn(move || health::run(self));
            while self.lasts(start.elapsed() < lasting) {
                thread::sleep(SAMPLED);
                let current = self.attack.current();
                footprint.add(self.server.resident());
                let peak = self.server.peak_of_all();
                if peak > most {
                    (most, at) = (peak, current);
                }
            }
            self.over.store(true, Ordering::Relaxed);
        });
        let mut round =
            std::mem::take(&mut *self.round.lock().unwrap_or_else(PoisonError::into_inner));
        round.memory(before, most, &at, limit);
        if self.attack.is_storm() {
            round.growth(footprint.growth());
        }
        round
    }

    /// Returns true until the time is over and each request of a description was sent. An attack that fails all
    /// the time ends early.
    fn lasts(&self, has_time: bool) -> bool {
        let is_incomplete = match &self.attack.means {
            Means::Described(described) => !described.is_complete(),
            _ => false,
        };
        let mut is_hopeless = false;
        self.note(|round| is_hopeless = round.is_hopeless());
        (has_time || is_incomplete) && !is_hopeless
    }

    /// Checks that the server has recovered. Returns an error if it no longer answers.
    fn check_recovery(&self, round: &mut Round, within: Duration) -> Result<(), Error> {
        if let Err(stuck) = self.server.quiet(self.slots, within)? {
            round.failed(stuck);
        }
        for case in self.cases {
            if let Err(wrong) = case.check(self.server) {
                round.failed(format!("after the attack: {wrong}"));
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Updates the results of the round.
    fn note(&self, note: impl FnOnce(&mut Round)) {
        note(&mut self.round.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
