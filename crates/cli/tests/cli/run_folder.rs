//! Run folders modified by others: damaged events, special files, removed folders.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::signals::send;
use super::support::{AssertText, CommandOutput, Sandbox};

impl Sandbox {
    /// A run `run` of 6 steps with checkpoints at 3 and 6.
    fn with_a_run() -> Self {
        let sandbox = Self::with_data();
        sandbox.trains("--data data --out run --steps 6 --set train.checkpoints.interval=3");
        sandbox
    }

    /// Modifies the lines of the run's events.
    fn change_events(&self, change: impl FnOnce(&mut Vec<Vec<u8>>)) {
        let path = self.path("run/events.jsonl");
        let bytes = fs::read(&path).unwrap();
        let mut lines: Vec<Vec<u8>> = bytes.split(|&b| b == b'\n').map(<[u8]>::to_vec).collect();
        change(&mut lines);
        fs::write(&path, lines.join(&b'\n')).unwrap();
    }

    /// Replaces a file of the run.
    fn replace(&self, name: &str, put: Replacement) {
        let path = self.path("run").join(name);
        fs::remove_file(&path).unwrap();
        match put {
            Replacement::Fifo => {
                assert!(
                    Command::new("mkfifo")
                        .arg(&path)
                        .status()
                        .unwrap()
                        .success()
                );
            }
            Replacement::Zeros => symlink("/dev/zero", &path).unwrap(),
        }
    }

    /// Runs a command with limits on time and memory.
    fn bounded(&self, line: &str) -> CommandOutput {
        let started = Instant::now();
        let ran = self.sh(&format!(
            "ulimit -v 16777216; timeout 60 \"$EMBERLM\" {line}"
        ));
        assert_ne!(
            ran.code,
            Some(124),
            "{line}: no end after {:?}",
            started.elapsed()
        );
        ran
    }
}

#[derive(Clone, Copy, Debug)]
enum Replacement {
    Fifo,
    Zeros,
}

fn index_of(lines: &[Vec<u8>], kind: &str, step: usize) -> usize {
    let wanted = format!("{{\"event\":\"{kind}\",\"step\":{step},");
    lines
        .iter()
        .position(|line| line.starts_with(wanted.as_bytes()))
        .unwrap()
}

#[test]
fn invalid_utf_8_loses_only_one_line() {
    let sandbox = Sandbox::with_a_run();
    let mut line = 0;
    sandbox.change_events(|lines| {
        let at = index_of(lines, "step", 2);
        lines[at][20] = 0xff;
        line = at + 1;
    });
    let expected = format!(
        "warning: run/events.jsonl: line {line} is not an event and was skipped: it is not UTF-8\n"
    );
    let ran = sandbox.words("plot run --out a.svg");
    assert_eq!((ran.code, &ran.stderr), (Some(0), &expected), "{ran}");
    let ran = sandbox.succeeds("runs .");
    assert_eq!(ran.stderr.replace("./run", "run"), expected);
    let ran = sandbox.succeeds("train --resume run --renderer plain --steps 8");
    ran.says(&expected);
    // The missing line is still reported.
    let ran = sandbox.words("plot run --out a.svg");
    ran.says("1 line is missing before line");
    ran.says("between steps 2 and 3");
}

#[test]
fn missing_and_repeated_lines_are_reported() {
    let sandbox = Sandbox::with_a_run();
    sandbox.ok("plot run --out a.svg");
    sandbox.change_events(|lines| {
        let lost = index_of(lines, "step", 4);
        lines.remove(lost);
        let twice = index_of(lines, "step", 2);
        let line = lines[twice].clone();
        lines.insert(twice + 1, line);
    });
    let ran = sandbox.succeeds("plot run --out a.svg");
    ran.says("of step 2, is there twice");
    ran.says("1 line is missing before line");
}

#[test]
fn fifos_and_devices_are_rejected() {
    for put in [Replacement::Fifo, Replacement::Zeros] {
        let kind = match put {
            Replacement::Fifo => "it is a FIFO, not a regular file",
            Replacement::Zeros => "it is a device, not a regular file",
        };
        // Training follows no link.
        let rules = [kind, "is a symbolic link"];
        let rejected = |ran: &CommandOutput| rules.iter().any(|rule| ran.stderr.contains(rule));
        let sandbox = Sandbox::with_a_run();
        sandbox.replace("events.jsonl", put);
        for line in [
            "plot run --out a.svg",
            "train --resume run --renderer plain --steps 8",
        ] {
            let ran = sandbox.bounded(line);
            assert_eq!(ran.code, Some(1), "{put:?}, {line}: {ran}");
            assert!(rejected(&ran), "{put:?}, {line}: {ran}");
        }
        let ran = sandbox.bounded("runs . --json");
        assert!(
            ran.code == Some(0) && ran.stdout.contains(kind),
            "{put:?}: {ran}"
        );
        let server = sandbox.serve("watch .");
        assert_eq!(server.json("/api/runs")["runs"][0]["status"], "interrupted");
        let answer = server.get("/api/events?run=run");
        assert!(
            answer.status == 500 && answer.body.contains(kind),
            "{}",
            answer.body
        );
        drop(server);

        let sandbox = Sandbox::with_a_run();
        let checkpoint = "checkpoints/step-00000006";
        for (name, line) in [
            (
                "config.toml",
                "train --resume run --renderer plain --steps 8",
            ),
            (
                &format!("{checkpoint}/manifest.json"),
                "info run/checkpoints/step-00000006",
            ),
            (
                &format!("{checkpoint}/../step-00000003/model.json"),
                "info run/checkpoints/step-00000003",
            ),
        ] {
            sandbox.replace(name, put);
            let ran = sandbox.bounded(line);
            assert_eq!(ran.code, Some(1), "{put:?}, {name}: {ran}");
            assert!(rejected(&ran), "{put:?}, {name}: {ran}");
        }
    }
}

#[test]
fn a_run_fails_when_its_folder_is_removed() {
    let sandbox = Sandbox::with_data();
    let child = sandbox.start_training("", "--steps 1000000");
    fs::rename(sandbox.path("run"), sandbox.path("gone")).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    stderr.assert_has("error: run was removed, renamed or replaced while it was being trained");
    assert!(!sandbox.path("run").exists(), "it was made again");
    fs::remove_dir_all(sandbox.path("gone")).unwrap();
}

#[test]
fn removing_the_lock_file_does_not_admit_a_second_trainer() {
    let sandbox = Sandbox::with_data();
    let child = sandbox.start_training("", "--steps 1000000");
    fs::remove_file(sandbox.path("run/lock")).unwrap();
    let ran = sandbox.fails("train --resume run --renderer plain");
    ran.says("run is being trained by another process");
    let listed = sandbox.ok("runs .");
    listed.assert_has("running");
    std::thread::sleep(Duration::from_millis(100));
    send(&child, Signal::TERM);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
