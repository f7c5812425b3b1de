//! Ranks that are stopped or killed.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::launch::{Launcher, process_of_rank, wait_until};
use crate::support::train::TINY;
use crate::support::{AssertText, Sandbox};

/// Starts a run of two ranks, and waits for a few steps and a checkpoint.
fn started(sandbox: &Sandbox) -> Child {
    started_with_checkpoints(sandbox, 5)
}

/// [`started`] with a checkpoint after every `interval` steps.
fn started_with_checkpoints(sandbox: &Sandbox, interval: usize) -> Child {
    let line = format!(
        "train {TINY} --data data --accumulation 2 --steps 1000000 --out run \
        --set train.checkpoints.interval={interval} --set train.evaluation.interval=1000000 --set train.schedule.decay_steps=50"
    );
    let mut command = sandbox.launcher(&[(2, &line)]);
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("checkpoint", || {
        sandbox.events_so_far("run", "checkpoint") > 0
    });
    child
}

fn signal(process: i32, signal: Signal) {
    kill_process(Pid::from_raw(process).unwrap(), signal).unwrap();
}

/// Resumes the run with one process for some steps.
fn resume(sandbox: &Sandbox) {
    let steps = sandbox.events("run", "step").len() + 20;
    let line = format!("train --resume run --steps {steps} --renderer plain");
    sandbox.succeeds(&line);
}

#[test]
fn a_killed_rank_ends_the_job_with_the_reason_and_a_whole_checkpoint() {
    let sandbox = Sandbox::with_data();
    for rank in [1, 0] {
        let child = started(&sandbox);
        signal(process_of_rank(child.id(), rank), Signal::KILL);
        let killed = Instant::now();
        let output = child.wait_with_output().unwrap();
        let seconds = killed.elapsed().as_secs_f64();
        assert!(seconds < 30.0, "{seconds} s");
        assert!(!output.status.success());
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        let reason = match Launcher::chosen() {
            Launcher::Mpirun => [&format!("rank {rank}"), "signal 9"],
            Launcher::Shell => [&format!("error: rank {rank} of 2 on "), "is lost"],
        };
        assert!(
            reason.iter().all(|part| message.contains(*part)),
            "{message}"
        );
        resume(&sandbox);
        std::fs::remove_dir_all(sandbox.path("run")).unwrap();
    }
}

/// With a checkpoint after every step, a rank is killed while the ranks or rank 0 write it.
#[test]
fn a_rank_that_is_killed_during_a_checkpoint_leaves_the_last_one_whole() {
    let sandbox = Sandbox::with_data();
    for (rank, wait) in [(1, 0), (0, 40), (1, 80), (0, 120)] {
        let child = started_with_checkpoints(&sandbox, 1);
        std::thread::sleep(Duration::from_millis(wait));
        signal(process_of_rank(child.id(), rank), Signal::KILL);
        assert!(!child.wait_with_output().unwrap().status.success());
        resume(&sandbox);
        std::fs::remove_dir_all(sandbox.path("run")).unwrap();
    }
}

#[test]
fn the_others_wait_for_a_rank_that_stands_still() {
    let sandbox = Sandbox::with_data();
    let child = started(&sandbox);
    let slow = process_of_rank(child.id(), 1);
    let steps = || sandbox.events_so_far("run", "step");
    signal(slow, Signal::STOP);
    std::thread::sleep(Duration::from_millis(500));
    let stopped_at = steps();
    std::thread::sleep(Duration::from_secs(2));
    assert!(steps() <= stopped_at + 1);
    signal(slow, Signal::CONT);
    wait_until("further steps", || steps() > stopped_at + 3);
    signal(slow, Signal::TERM);
    assert!(child.wait_with_output().unwrap().status.success());
}

#[test]
fn a_stop_signal_to_one_rank_checkpoints_and_ends_all() {
    let sandbox = Sandbox::with_data();
    for rank in [Some(1), Some(0), None] {
        let child = started(&sandbox);
        match rank {
            Some(rank) => signal(process_of_rank(child.id(), rank), Signal::TERM),
            // The launcher passes it on to all ranks.
            None => signal(child.id() as i32, Signal::USR1),
        }
        let output = child.wait_with_output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{message}");
        message.assert_has("Stopped after step");
        let ended = sandbox.events("run", "ended");
        assert_eq!(ended[0]["how"], "interrupted");
        let step = ended[0]["step"].as_u64().unwrap() as usize;
        assert!(!sandbox.weights("run", step).is_empty());
        resume(&sandbox);
        std::fs::remove_dir_all(sandbox.path("run")).unwrap();
    }
}
