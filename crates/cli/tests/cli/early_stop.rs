//! `train --early-stop`: a run ends when its validation loss does not improve.

use std::fs;
#[cfg(unix)]
use std::time::Duration;

#[cfg(unix)]
use rustix::process::Signal;
use serde_json::Value;

#[cfg(unix)]
use super::signals::send;
#[cfg(unix)]
use super::support::train::TINY;
#[cfg(unix)]
use super::support::wait_until;
use super::support::{AssertText, Sandbox};

/// Evaluations after every second step. At a learning rate of 0 none is below the first one.
const LINE: &str = "--data data --eval-interval 2 --set train.schedule.kind=constant \
    --set train.schedule.learning_rate=0 --set train.checkpoints.interval=3";

/// The status of a run, as `emberlm runs` lists it.
fn status(sandbox: &Sandbox) -> String {
    let runs: Value = sandbox.json("runs . --json");
    runs[0]["status"].as_str().unwrap().to_owned()
}

#[test]
fn a_run_ends_after_evaluations_without_a_lower_loss() {
    let sandbox = Sandbox::with_data();
    let ran = sandbox.trains(&format!("{LINE} --steps 40 --early-stop 3 --out run"));
    ran.says("Stopped early after step 8: none of the last 3 evaluations was below ");
    ran.says(", the validation loss of step 2.");
    assert_eq!(sandbox.events("run", "ended")[0]["how"], "early_stopped");
    assert_eq!(status(&sandbox), "early_stopped");
    sandbox.ok("runs .").assert_has("early-stopped");
    // The checkpoints of the lowest loss, of the interval and of the end.
    assert_eq!(sandbox.steps("run"), [2, 3, 6, 8]);
    let state = sandbox.value("run/checkpoints/step-00000008/state.json");
    assert_eq!(state["evaluations_since_best"], 3);
}

#[test]
fn a_resumed_run_stops_at_the_same_step() {
    let sandbox = Sandbox::with_data();
    sandbox.trains(&format!("{LINE} --steps 40 --early-stop 3 --out run"));
    let whole = sandbox.checkpoint("run", 8);
    for (lost, before) in [(&[8][..], 6), (&[8, 6], 3)] {
        // As if the process was killed before it wrote these checkpoints.
        for step in lost {
            fs::remove_dir_all(sandbox.path(format!("run/checkpoints/step-{step:08}"))).unwrap();
        }
        let ran = sandbox.succeeds("train --resume run --renderer plain");
        ran.says(&format!("Resuming run after step {before}"));
        ran.says("Stopped early after step 8");
        assert!(sandbox.checkpoint("run", 8) == whole, "after step {before}");
        assert_eq!(sandbox.losses("run").len(), 8);
    }
}

/// The evaluation that a stop interrupts decides that the run ends, after it was resumed.
#[cfg(unix)]
#[test]
fn a_repeated_evaluation_ends_a_run() {
    let sandbox = Sandbox::with_data();
    let lines = (0..40_000).map(|i| format!("{i} and {} make {}\n", i + 1, 2 * i + 1));
    sandbox.write("long.txt", lines.collect::<String>());
    sandbox.ok("prepare long.txt --out long --tokenizer char");
    let line = format!(
        "train {TINY} {LINE} --data long --steps 9 --early-stop 1 --set train.evaluation.batch=1 \
         --set train.evaluation.tokens=0 --out run"
    );
    let mut child = sandbox.background(&line.replacen("--data data ", "", 1));
    wait_until("the fourth step", || {
        sandbox.events_so_far("run", "step") > 3
    });
    std::thread::sleep(Duration::from_millis(100));
    send(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(sandbox.events("run", "evaluation").len(), 1);
    for _ in 0..2 {
        let ran = sandbox.succeeds("train --resume run --renderer plain");
        ran.says("Stopped early after step 4");
        assert_eq!(sandbox.events("run", "evaluation").len(), 2);
        let state = sandbox.value("run/checkpoints/step-00000004/state.json");
        assert_eq!(state["evaluations_since_best"], 1);
        assert!(state.get("evaluation_due").is_none(), "{state}");
    }
}

#[test]
fn a_run_that_has_stopped_early_continues_with_another_number() {
    let sandbox = Sandbox::with_data();
    sandbox.trains(&format!("{LINE} --steps 40 --early-stop 2 --out run"));
    let resume = "train --resume run --renderer plain";
    let ran = sandbox.succeeds(resume);
    ran.says("run has stopped early, after 2 evaluations without a lower validation loss");
    assert_eq!(sandbox.losses("run").len(), 6);
    sandbox
        .succeeds(&format!("{resume} --early-stop 4"))
        .says("Stopped early after step 10");
    let line = format!("{resume} --set train.evaluation.early_stop=0 --steps 13");
    sandbox.succeeds(&line);
    assert_eq!(sandbox.losses("run").len(), 13);
    assert_eq!(status(&sandbox), "finished");
}

#[test]
fn a_fork_with_other_settings_counts_from_its_start() {
    let sandbox = Sandbox::with_data();
    sandbox.trains(&format!("{LINE} --steps 40 --early-stop 2 --out run"));
    let fork = "train --resume run --renderer plain --out fork";
    let ran = sandbox.succeeds(&format!("{fork} --set train.clip_norm=2"));
    ran.says("Stopped early after step 10");
    let ran = sandbox.succeeds(&format!("{fork}-2"));
    ran.says("run has stopped early");
    assert_eq!(sandbox.losses("fork-2").len(), 6);
}

#[test]
fn the_last_step_finishes_a_run() {
    let sandbox = Sandbox::with_data();
    let ran = sandbox.trains(&format!("{LINE} --early-stop 2 --steps 6 --out run"));
    assert!(!ran.stderr.contains("Stopped early"), "{ran}");
    assert_eq!(sandbox.events("run", "ended")[0]["how"], "finished");
}

#[test]
fn early_stopping_needs_validation_data() {
    let sandbox = Sandbox::with_data();
    sandbox.write("text.txt", "0 and 1 make 1\n".repeat(100));
    sandbox.ok("prepare text.txt --out unsplit --tokenizer char --val-fraction 0");
    sandbox.check_messages("early_stop");
    assert!(!sandbox.path("new").exists());
}
