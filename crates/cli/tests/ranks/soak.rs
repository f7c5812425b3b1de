//! Jobs whose ranks are killed at random moments, and resumed with other numbers of ranks, equal an uninterrupted run of one
//! process.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use emberlm_trainer::checkpoint::Checkpoint;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};

use crate::launch::{Launcher, find_rank};
use crate::support::Sandbox;
use crate::support::train::TINY;

/// The steps of a run.
const STEPS: usize = 150;

/// Settings with state of all kinds: dropout, an average, skipped steps, a schedule, a best loss, logged and unlogged steps.
const LINE: &str = "--data data --steps 150 --eval-interval 7 --keep-last 3 --keep-best --ema 0.9 \
    --set model.dropout=0.1 --set train.checkpoints.interval=4 --set train.evaluation.tokens=300 \
    --set train.schedule.warmup_steps=20 --set train.schedule.learning_rate=1e-2 --set train.skip.kind=outliers \
    --set train.skip.deviations=2 --set train.skip.window=10";

/// The moment of a kill.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// After this time.
    After(Duration),
    /// While a checkpoint is written.
    WithinACheckpoint,
}

/// The longest time for a job to end by itself, many times that of an uninterrupted one.
const LIMIT: Duration = Duration::from_secs(90);

/// Waits for the job's end and returns whether it succeeded. Open MPI 4.1's `mpirun` sometimes fails to notice the exit of a
/// rank: after [`LIMIT`] it is killed, as a vanished host would be.
fn succeeded(child: &mut Child) -> bool {
    let started = Instant::now();
    while started.elapsed() < LIMIT {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    eprintln!("the launcher did not end");
    child.kill().unwrap();
    child.wait().unwrap().success()
}

/// Kills a rank of the job at the moment, and waits for the job's end. Returns false if the job ended before.
fn kill_at(child: &mut Child, ranks: usize, victim: usize, moment: Moment, run: &Path) -> bool {
    let started = Instant::now();
    let mut process = None;
    while child.try_wait().unwrap().is_none() && started.elapsed() < LIMIT {
        process = process.or_else(|| match ranks {
            1 => Some(child.id() as i32),
            _ => find_rank(child.id(), victim),
        });
        let now = match moment {
            Moment::After(delay) => started.elapsed() >= delay,
            Moment::WithinACheckpoint => is_partial(run),
        };
        if let (true, Some(process)) = (now, process.and_then(Pid::from_raw)) {
            // It may have ended in the meantime.
            let killed = kill_process(process, Signal::KILL).is_ok();
            return !succeeded(child) && killed;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    false
}

/// Returns true while a checkpoint of the run is written.
fn is_partial(run: &Path) -> bool {
    let entries = fs::read_dir(run.join("checkpoints")).into_iter().flatten();
    let mut names = entries.flatten().map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().ends_with(".partial"))
}

/// The command that begins or resumes a run.
fn command(sandbox: &Sandbox, line: &str, ranks: usize) -> Command {
    let mut command = match ranks {
        1 => sandbox.command(line.split_whitespace()),
        ranks => sandbox.launcher(&[(ranks, line)]),
    };
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Kills ranks of jobs `kills` times. A step has `accumulation` micro-batches, which one rank computes, or as many ranks. If a
/// run ends before it was killed often enough, another one follows.
fn soak(accumulation: usize, kills: usize, seed: u64) {
    if !Launcher::is_mpirun("kills of ranks") {
        return;
    }
    let sandbox = Sandbox::with_data();
    let line = format!("{LINE} --set train.micro_batch=1 --accumulation {accumulation}");
    sandbox.trains(&format!("{line} --out whole"));
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut below = |count: usize| rng.next_u32() as usize % count;
    let (mut killed, mut within, mut left, mut run) = (0, 0, 0, 0);
    let mut of_rank = vec![0; accumulation];
    while killed < kills {
        run += 1;
        let out = format!("killed-{run}");
        let folder = sandbox.path(&out);
        loop {
            let line = match folder.join("config.toml").exists() {
                true => format!("train --resume {out} --restart --renderer plain"),
                false => format!("train {TINY} {line} --out {out}"),
            };
            // Ranks with one micro-batch each have the bits of one process.
            let ranks = [1, accumulation, accumulation][below(3)];
            let mut child = command(&sandbox, &line, ranks).spawn().unwrap();
            let moment = match below(2) {
                0 => Moment::WithinACheckpoint,
                _ => Moment::After(Duration::from_millis(200 + below(1500) as u64)),
            };
            let victim = below(ranks);
            if killed >= kills || !kill_at(&mut child, ranks, victim, moment, &folder) {
                let is_complete = folder.join(format!("checkpoints/step-{STEPS:08}")).exists();
                assert!(
                    succeeded(&mut child) || is_complete,
                    "{line}, {ranks} ranks"
                );
                break;
            }
            killed += 1;
            of_rank[victim] += 1;
            within += usize::from(matches!(moment, Moment::WithinACheckpoint));
            left += usize::from(is_partial(&folder));
            // Visible checkpoints are complete.
            let checkpoints = fs::read_dir(folder.join("checkpoints"));
            for entry in checkpoints.into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().starts_with("step-") {
                    Checkpoint::open(entry.path()).unwrap();
                }
            }
        }
        compare(&sandbox, &out);
    }
    println!(
        "accumulation {accumulation}: {killed} kills ({of_rank:?} by rank), {within} aimed at a checkpoint's write, {left} \
        left a part of one, in {run} runs"
    );
    assert!(within > 0, "no kill hit a checkpoint's write");
    assert!(of_rank.iter().all(|&kills| kills > 0) || kills < 20);
}

/// Asserts that the run's events and last checkpoint equal those of the uninterrupted run.
#[track_caller]
fn compare(sandbox: &Sandbox, run: &str) {
    let lines = |run: &str| {
        let text = fs::read_to_string(sandbox.path(run).join("events.jsonl")).unwrap();
        // Events with a time depend on the machine.
        let lines = text.lines().filter(|line| !line.contains("\"time\":"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines("whole"), lines(run));
    assert!(
        sandbox.checkpoint("whole", STEPS) == sandbox.checkpoint(run, STEPS),
        "{run}'s last checkpoint differs"
    );
}

/// The number of kills. `EMBERLM_SOAK_KILLS` sets it for longer soak tests.
fn kills(usual: usize) -> usize {
    let asked = std::env::var("EMBERLM_SOAK_KILLS").ok();
    asked.map_or(usual, |kills| kills.parse().unwrap())
}

#[test]
fn two_ranks_killed_again_and_again_equal_an_uninterrupted_process() {
    soak(2, kills(6), 1);
}

#[test]
fn four_ranks_killed_again_and_again_equal_an_uninterrupted_process() {
    soak(4, kills(6), 2);
}
