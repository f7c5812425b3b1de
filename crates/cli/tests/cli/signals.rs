//! Signals that ask the program to stop, and those that were ignored when it was started.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::support::Sandbox;
use super::support::train::TINY;

impl Sandbox {
    /// Starts `train` on `data` into `run`, by a shell that first runs `before`, and waits for its first step.
    pub fn start_training(&self, before: &str, more: &str) -> Child {
        let line = format!(
            "{before} exec \"$EMBERLM\" train {TINY} --data data --out run --set train.eval_interval=1000000 {more}"
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

#[track_caller]
pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(
            started.elapsed() < Duration::from_secs(120),
            "{what} does not come"
        );
        std::thread::sleep(Duration::from_millis(5));
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
    // Each of them, sent twice, would end the process at once.
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
fn a_run_under_nohup_goes_to_its_end() {
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
