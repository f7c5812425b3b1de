//! Runs that are killed at random moments and resumed equal an uninterrupted run.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use emberlm_trainer::checkpoint::Checkpoint;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::support::Sandbox;
use super::support::train::TINY;

/// Settings with all kinds of state: dropout, accumulation, a schedule, a best loss, logged and unlogged
/// steps.
const LINE: &str = "--data data --steps 150 --accumulation 2 --eval-interval 7 --keep-last 3 \
    --keep-best --set model.dropout=0.1 --set train.checkpoints.interval=4 --set train.log_interval=3 \
    --set train.evaluation.tokens=300 --set train.schedule.warmup_steps=20 --set train.schedule.learning_rate=1e-2";

/// The moment to kill a process.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// After this time.
    After(Duration),
    /// While it writes a checkpoint.
    WithinACheckpoint,
}

/// Waits for the moment or the process's end. Returns true if the process was killed.
fn kill_at(child: &mut Child, moment: Moment, checkpoints: &Path) -> bool {
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        let now = match moment {
            Moment::After(delay) => started.elapsed() >= delay,
            Moment::WithinACheckpoint => partial(checkpoints),
        };
        if now {
            child.kill().unwrap();
            child.wait().unwrap();
            return true;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    false
}

/// Returns true if a checkpoint is being written.
fn partial(checkpoints: &Path) -> bool {
    let entries = fs::read_dir(checkpoints).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().ends_with(".partial"))
}

/// Settings with further state that carries over between steps.
const MORE: &str = "--ema 0.9 --set train.optimizer.kind=muon --set train.skip.kind=outliers \
    --set train.skip.deviations=2 --set train.skip.window=10 --set train.loss.label_smoothing=0.1 --set train.loss.z_loss=1e-4";

/// Kills a run `kills` times, resumes it each time, and compares the result with an uninterrupted run. If a
/// run ends before it was killed often enough, another one follows.
fn soak(settings: &str, kills: usize, seed: u64) {
    let sandbox = Sandbox::with_data();
    let line = format!("{LINE} {settings}");
    let backend = settings.split_whitespace().nth(1).unwrap();
    sandbox.trains(&format!("{line} --out whole"));
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut killed, mut within, mut run) = (0, 0, 0);
    while killed < kills {
        run += 1;
        let out = format!("killed-{run}");
        let checkpoints = sandbox.path(&out).join("checkpoints");
        loop {
            let line = match sandbox.path(&out).join("config.toml").exists() {
                true => {
                    format!("train --resume {out} --restart --renderer plain --backend {backend}")
                }
                false => format!("train {TINY} {line} --out {out}"),
            };
            let mut command = sandbox.command(line.split_whitespace());
            // Each attempt uses a different number of threads.
            command.env("RAYON_NUM_THREADS", (1 + rng.next_u32() % 3).to_string());
            let command = command.stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            let moment = match rng.next_u32() % 2 {
                0 => Moment::WithinACheckpoint,
                _ => Moment::After(Duration::from_millis(u64::from(20 + rng.next_u32() % 500))),
            };
            if killed >= kills || !kill_at(&mut child, moment, &checkpoints) {
                assert!(child.wait().unwrap().success(), "{line}");
                break;
            }
            killed += 1;
            within += usize::from(partial(&checkpoints));
            // Visible checkpoints are complete.
            for entry in fs::read_dir(&checkpoints).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().starts_with("step-") {
                    Checkpoint::open(entry.path()).unwrap();
                }
            }
        }
        compare(&sandbox, &out);
    }
    println!("{settings}: {killed} kills, {within} within a checkpoint's write, in {run} runs");
    assert!(within > 0, "no kill hit a checkpoint's write");
}

/// Asserts that the run's events and last checkpoint equal those of the uninterrupted run.
#[track_caller]
fn compare(sandbox: &Sandbox, run: &str) {
    let lines = |run: &str| {
        let text = sandbox.text(format!("{run}/events.jsonl"));
        // Events with a time depend on the machine.
        let lines = text.lines().filter(|line| !line.contains("\"time\":"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines("whole"), lines(run));
    assert_eq!(sandbox.steps("whole"), sandbox.steps(run));
    let [expected, found] = ["whole", run].map(|run| sandbox.checkpoint(run, 150));
    assert!(expected == found, "{run}'s last checkpoint differs");
}

/// The number of kills. `EMBERLM_SOAK_KILLS` sets it for longer soak tests.
fn kills(usual: usize) -> usize {
    let asked = std::env::var("EMBERLM_SOAK_KILLS").ok();
    asked.map_or(usual, |kills| kills.parse().unwrap())
}

#[test]
fn a_run_killed_again_and_again_equals_an_uninterrupted_run() {
    soak("--backend flex", kills(20), 1);
}

#[cfg(feature = "ndarray")]
#[test]
fn a_run_killed_again_and_again_equals_an_uninterrupted_run_on_ndarray() {
    soak("--backend ndarray", kills(8), 2);
}

#[test]
fn a_run_with_an_average_and_skipped_steps_equals_an_uninterrupted_run() {
    soak(&format!("--backend flex {MORE}"), kills(8), 3);
}
