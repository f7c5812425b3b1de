//! `cargo xtask attack`: runs hostile clients and well-behaved clients against a real server on this machine.
//!
//! Map: `kinds` lists the attacks that were written by hand, `described` generates the requests to each operation of the
//! server's OpenAPI description, `hostile` runs one client of an attack, `polite` is the well-behaved client,
//! `health` measures the time of `/health`, and `report` prints the table and the verdict. `storm` provides the
//! requests of the well-behaved client and the malformed requests.
//!
//! The attacks run one after the other. During an attack each well-behaved client must receive the answers that
//! a single client receives, within a time limit, and `/health` must answer. The server's memory must stay below
//! a limit, which `prlimit` also enforces. After the attack all slots must be free.

mod described;
mod health;
mod hostile;
mod kinds;
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
    kinds::{Attack, Means},
    report::Round,
};
use crate::{
    bench,
    error::Error,
    python::absolute,
    served::{process::Server, small_model},
    storm::{cases, cases::Case},
    workspace,
};

/// Slots of the server, few enough for the attackers to occupy all of them.
const SLOTS: usize = 8;
/// The server's `--max-queue`.
const QUEUE: usize = 64;
/// Concurrent well-behaved clients.
const WELL_BEHAVED: usize = 2;
/// The interval between readings of the server's memory.
const SAMPLED: Duration = Duration::from_millis(100);

/// Arguments of `cargo xtask attack`.
#[derive(Clone, Debug, clap::Args)]
pub struct AttackArgs {
    /// Attack this binary instead of building the release binary.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
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

/// State shared by the clients of one attack.
struct AttackRun<'a> {
    server: &'a Server,
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
    let model = small_model::make(&binary, folder.as_std_path())?;
    let rounds = run_all(args, &binary, &model)?;
    print!("{}", report::table(&rounds));
    Ok(match rounds.iter().all(Round::is_good) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Runs the attacks on one server. Starts a new server after an attack that ended it.
fn run_all(args: &AttackArgs, binary: &Path, model: &Path) -> Result<Vec<Round>, Error> {
    let numbers = [SLOTS as u64, QUEUE as u64, args.timeout].map(|number| number.to_string());
    let [slots, queue, timeout] = &numbers;
    let mut options = vec!["--slots", slots, "--max-queue", queue, "--timeout", timeout];
    // The small model has no chat template.
    options.extend(["--chat-template", "chatml"]);
    options.extend(args.options.iter().map(String::as_str));
    let limit = args.memory << 20;
    let start = || Server::start_within(limit, binary, model, options.iter().copied());
    let mut server = start()?;
    let mut attacks = kinds::all();
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
            cases: &cases,
            attack,
            patience: Duration::from_secs(patience),
            over: AtomicBool::new(false),
            round: Mutex::new(Round::new(&attack.name)),
        };
        let mut round = attack_run.run(lasting, limit);
        if let Err(gone) =
            attack_run.check_recovery(&mut round, Duration::from_secs(args.timeout + 5))
        {
            round.failed(format!("the server is gone: {gone}"));
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
        thread::scope(|scope| {
            for number in 0..self.attack.clients {
                scope.spawn(move || hostile::run(self, number));
            }
            for number in 0..WELL_BEHAVED {
                scope.spawn(move || polite::run(self, number));
            }
            scope.spawn(move || health::run(self));
            while self.lasts(start.elapsed() < lasting) {
                thread::sleep(SAMPLED);
                let current = self.attack.current();
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
        if let Err(stuck) = self.server.quiet(SLOTS, within)? {
            round.failed(stuck);
        }
        if let Some(case) = self.cases.first()
            && let Err(wrong) = case.check(self.server)
        {
            round.failed(format!("after the attack: {wrong}"));
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
