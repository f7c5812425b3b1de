//! Runs the examples as a reader would.

use std::io;
use std::process::{Command, Output};

fn run(program: &str, args: &[&str]) -> io::Result<Output> {
    Command::new(program).args(args).output()
}

#[test]
fn a_loop_of_ones_own_lowers_the_loss() {
    let output = run(env!("CARGO_BIN_EXE_train-loop"), &["25"]).unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let losses: Vec<f64> = text
        .lines()
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(losses.len(), 25);
    // The first is that of a model that knows nothing of 54 characters: ln 54 = 3.99 and a little more.
    assert!((3.8..4.6).contains(&losses[0]), "{}", losses[0]);
    assert!(losses[24] < 2.9, "{}", losses[24]);
}

#[test]
fn sampling_needs_a_run() {
    let output = run(env!("CARGO_BIN_EXE_sample"), &[]).unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("usage: sample RUN"), "{text}");
}
