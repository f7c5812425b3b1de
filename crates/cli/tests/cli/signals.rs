//! Stop signals, and signals that were ignored at startup.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::support::train::TINY;
use super::support::{AssertText, Sandbox, wait_until};

impl Sandbox {
    /// Starts `train` on `data` into `run` from a shell that first runs `before`, and waits for its first
    /// step.
    pub fn start_training(&self, before: &str, more: &str) -> Child {
        let line = format!(
            "{before} exec \"$EMBERLM\" train {TINY} --data data --out run --set train.evaluation.interval=1000000 {more}"
        );
        let child = self
            .shell(&line)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let events = self.path("run/events.jsonl");
        wait_until("a first step", || {
            std::fs::read_to_string(&events).is_ok_and(|text| text.contains("\"event\":\"step\""))
        });
        child
    }

    fn how_it_ended(&self) -> String {
        let ended = self.events("run", "ended");
        ended[0]["how"].as_str().unwrap().to_owned()
    }
}

pub fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let sandbox = Sandbox::with_data();
    let mut child = sandbox.start_training("trap '' HUP INT;", "--steps 1000000");
    // Each of them would end the process if sent twice.
    for signal in [Signal::HUP, Signal::INT, Signal::HUP, Signal::INT] {
        send(&child, signal);
    }
    let steps = || sandbox.events_so_far("run", "step");
    let before = steps();
    wait_until("another step", || steps() > before + 3);
    send(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(sandbox.how_it_ended(), "interrupted");
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_under_nohup_finishes() {
    let sandbox = Sandbox::with_data();
    let line = format!("exec nohup \"$EMBERLM\" train {TINY} --data data --out run --steps 200");
    let mut child = sandbox.shell(&line).stderr(Stdio::null()).spawn().unwrap();
    wait_until("a first step", || sandbox.events_so_far("run", "step") > 0);
    send(&child, Signal::HUP);
    assert!(
        sandbox.events_so_far("run", "ended") == 0,
        "it has ended before"
    );
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(sandbox.how_it_ended(), "finished");
    assert!(
        sandbox
            .path("run/checkpoints/step-00000200/manifest.json")
            .exists()
    );
}

#[test]
fn a_closed_terminal_ends_a_run_with_a_checkpoint() {
    let sandbox = Sandbox::with_data();
    let mut child = sandbox.start_training("", "--steps 1000000");
    send(&child, Signal::HUP);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(sandbox.how_it_ended(), "interrupted");
    assert_eq!(
        std::fs::read_dir(sandbox.path("run/checkpoints"))
            .unwrap()
            .count(),
        1
    );
}

/// A step with so many micro-batches that it takes seconds.
const LONG: &str = "--data data --steps 3 --accumulation 1500 --set train.evaluation.interval=1000";

/// Starts a run of long steps, and stops it shortly after `kind` appears in its log.
fn stopped_within_a_step(sandbox: &Sandbox, kind: &str, out: &str) -> (Duration, String) {
    let mut child = sandbox
        .command(format!("train {TINY} {LONG} --out {out}").split_whitespace())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the run", || sandbox.events_so_far(out, kind) > 0);
    std::thread::sleep(Duration::from_millis(300));
    let asked = Instant::now();
    send(&child, Signal::INT);
    let mut output = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut output).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{output}");
    (asked.elapsed(), output)
}

#[test]
fn a_run_stopped_within_a_step_resumes_bit_exactly() {
    let sandbox = Sandbox::with_data();
    let started = Instant::now();
    let line = format!("train {TINY} {LONG} --out whole");
    sandbox.succeeds(&line);
    let step = started.elapsed() / 3;
    let (took, output) = stopped_within_a_step(&sandbox, "step", "run");
    output.assert_has("Stopping after this micro-batch, with a checkpoint of the last whole step.");
    println!("a step takes {step:?}, stopping took {took:?}");
    // Only the first step counts. The second one was discarded.
    assert_eq!(sandbox.events("run", "ended")[0]["step"], 1);
    assert_eq!(sandbox.losses("run").len(), 1);
    sandbox.succeeds("train --resume run --renderer plain");
    assert_eq!(sandbox.losses("whole"), sandbox.losses("run"));
    assert_eq!(sandbox.weights("whole", 3), sandbox.weights("run", 3));
}

#[test]
fn a_run_stopped_within_its_first_step_has_no_checkpoint() {
    let sandbox = Sandbox::with_data();
    let (_, output) = stopped_within_a_step(&sandbox, "begun", "run");
    output.assert_has("Stopped after step 0.");
    assert_eq!(sandbox.losses("run"), [] as [f64; 0]);
    let saved = std::fs::read_dir(sandbox.path("run/checkpoints")).unwrap();
    assert_eq!(saved.count(), 0);
    // Restarting loses nothing, so it needs no `--restart`.
    sandbox.succeeds("train --resume run --renderer plain --steps 1");
}

#[test]
fn an_interrupted_evaluation_is_repeated_after_resuming() {
    let sandbox = Sandbox::with_data();
    let lines = (0..40_000).map(|i| format!("{i} and {} make {}\n", i + 1, 2 * i + 1));
    sandbox.write("long.txt", lines.collect::<String>());
    sandbox.ok("prepare long.txt --out long --tokenizer char");
    let line = format!(
        "train {TINY} --data long --steps 3 --eval-interval 2 --set train.evaluation.batch=1 \
         --set train.evaluation.tokens=0 --out"
    );
    sandbox.succeeds(&format!("{line} whole"));
    let mut child = sandbox.background(&format!("{line} run"));
    wait_until("the second step", || {
        sandbox.events_so_far("run", "step") > 1
    });
    std::thread::sleep(Duration::from_millis(100));
    send(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(sandbox.events("run", "ended")[0]["step"], 2);
    assert_eq!(sandbox.events("run", "evaluation").len(), 0);
    sandbox.succeeds("train --resume run --renderer plain");
    let log = |run: &str| {
        let text = sandbox.text(format!("{run}/events.jsonl"));
        let lines = text.lines().filter(|line| !line.contains("\"time\":"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(log("whole"), log("run"));
    assert_eq!(sandbox.weights("whole", 3), sandbox.weights("run", 3));
}
