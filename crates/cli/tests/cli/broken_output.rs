//! Unwritable stdout and stderr: a full device, a closed pipe, a closed terminal.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use portable_pty::CommandBuilder;
use rustix::process::Signal;

use super::signals::send;
use super::support::Sandbox;
use super::support::terminal::Terminal;
use super::support::train::TINY;

/// Broken stderr, as shell redirections.
const BROKEN: [&str; 2] = ["2>/dev/full", "2>&-"];

fn full() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

#[test]
fn training_succeeds_with_a_broken_stderr() {
    let sandbox = Sandbox::with_data();
    for (at, broken) in BROKEN.iter().enumerate() {
        let line =
            format!("\"$EMBERLM\" train {TINY} --data data --out run-{at} --steps 3 {broken}");
        let ran = sandbox.sh(&line);
        assert_eq!(ran.code, Some(0), "{line}: {ran}");
        ran.prints("To generate");
        let last = sandbox.path(format!("run-{at}/checkpoints/step-00000003/manifest.json"));
        assert!(last.exists(), "{line}");
    }
    let line = format!(
        "{{ \"$EMBERLM\" train {TINY} --data data --out piped --steps 20; echo $? > code; }} 2>&1 | head -1"
    );
    sandbox.sh(&line);
    assert_eq!(sandbox.text("code"), "0\n");
    assert!(
        sandbox
            .path("piped/checkpoints/step-00000020/manifest.json")
            .exists()
    );
}

#[test]
fn commands_succeed_with_a_broken_stderr() {
    let sandbox = Sandbox::with_char_model();
    let lines = [
        ("prepare text.txt --out again --tokenizer char --force", 0),
        ("generate run --prompt hello --max-new-tokens 3", 0),
        ("generate nowhere", 1),
        ("generate run --no-such-option", 2),
        ("eval run --data data", 0),
        ("chat run --chat-template chatml --no-history", 0),
        ("runs .", 0),
        ("info run", 0),
    ];
    for (line, code) in lines {
        for broken in BROKEN {
            let ran = sandbox.sh(&format!("echo /help | \"$EMBERLM\" {line} {broken}"));
            assert_eq!(ran.code, Some(code), "{line} {broken}: {ran}");
        }
    }
}

#[test]
fn servers_respond_with_a_broken_stderr() {
    let sandbox = Sandbox::with_char_model();
    for line in ["serve run --port 0", "watch . --port 0"] {
        let mut command = sandbox.command(line.split_whitespace());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(full())
            .spawn()
            .unwrap();
        let mut output = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut output).unwrap();
        assert!(output.starts_with("http://"), "{line}: {output:?}");
        send(&child, Signal::TERM);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{line}");
    }
}

#[test]
fn stdout_failures_are_errors_except_closed_pipes() {
    let sandbox = Sandbox::with_char_model();
    for line in [
        "generate run --prompt hello --max-new-tokens 3",
        "info run",
        "--help",
        "runs . --json",
    ] {
        let ran = sandbox.sh(&format!("\"$EMBERLM\" {line} >/dev/full"));
        assert_eq!(ran.code, Some(1), "{line}: {ran}");
        assert!(
            ran.stderr.contains("error: cannot write to stdout: "),
            "{line}: {ran}"
        );
        let ran = sandbox.sh(&format!(
            "{{ \"$EMBERLM\" {line}; echo $? > code; }} | exec 0<&-; cat code"
        ));
        assert_eq!(
            (&ran.stdout[..], &ran.stderr[..]),
            ("0\n", ""),
            "{line}: {ran}"
        );
    }
}

#[test]
fn a_run_finishes_after_its_terminal_closes() {
    let sandbox = Sandbox::with_data();
    for renderer in ["dashboard", "plain"] {
        let tiny = TINY.replace("--renderer plain", "");
        let line = format!(
            "trap '' HUP; exec \"$EMBERLM\" train {tiny} --renderer {renderer} --data data --out {renderer} --steps 400"
        );
        let mut command = CommandBuilder::new("sh");
        command.args(["-c", &line]);
        command.env("EMBERLM", env!("CARGO_BIN_EXE_emberlm"));
        let terminal = Terminal::start_command(&sandbox, command, 24, 80);
        terminal.wait_for("a step", |text| text.contains("loss "));
        let mut child = terminal.close();
        assert_eq!(
            sandbox.events_so_far(renderer, "ended"),
            0,
            "it has ended before"
        );
        let started = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if started.elapsed() > Duration::from_secs(120) {
                child.kill().unwrap();
                panic!("{renderer}: it does not end");
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(status.success(), "{renderer}: {status:?}");
        assert_eq!(sandbox.events(renderer, "ended")[0]["how"], "finished");
    }
}
