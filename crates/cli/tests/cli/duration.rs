//! The estimated duration that `train` prints before its first step.

use std::fs;
use std::io::Read;
use std::process::Child;

use rustix::process::Signal;

use super::signals::send;
use super::support::{Sandbox, wait_until};

/// Parses the seconds from "about 1 h 5 min", "about 5 min" or "about 40 s" on the line that starts with
/// "training".
#[track_caller]
fn printed_seconds(stderr: &str) -> f64 {
    let line = stderr.lines().find(|line| line.starts_with("training "));
    let time = line.and_then(|line| line.split("; about ").nth(1));
    let words: Vec<&str> = time
        .unwrap_or_else(|| panic!("{stderr}"))
        .split(' ')
        .collect();
    let parts = words.chunks(2).filter_map(|pair| match pair {
        &[number, unit] => Some((number.replace(',', "").parse::<f64>().ok()?, unit)),
        _ => None,
    });
    parts
        .map(|(number, unit)| {
            number
                * match unit {
                    "h" => 3600.0,
                    "min" => 60.0,
                    "s" => 1.0,
                    other => panic!("{other}: {stderr}"),
                }
        })
        .sum()
}

/// The steps of the run of `printed_over_used`.
const STEPS: usize = 200_000;
/// The steps between two events of `pace`.
const INTERVAL: usize = 100;

/// The CPU time of a process in seconds (`proc_pid_stat(5)`: fields 14 and 15, in hundredths of a second).
fn cpu_seconds(child: &Child) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let after_name = stat.rsplit(") ").next().unwrap();
    let ticks = after_name.split(' ').skip(11).take(2);
    ticks
        .map(|ticks| ticks.parse::<f64>().unwrap())
        .sum::<f64>()
        / 100.0
}

/// The ratio of a run's printed duration to the CPU time of its steps, on one thread: the time that the run would
/// take on an idle machine.
fn printed_over_used(more: &str) -> f64 {
    let sandbox = Sandbox::with_data();
    let line = format!("--steps {STEPS} --set train.log_interval={INTERVAL} {more}");
    let mut child = sandbox.start_training("export RAYON_NUM_THREADS=1;", &line);
    let reached = |count| {
        wait_until("some steps", || {
            sandbox.events_so_far("run", "pace") > count
        });
        (sandbox.events_so_far("run", "pace"), cpu_seconds(&child))
    };
    let first = reached(1);
    let last = reached(first.0 + 4);
    let steps = (last.0 - first.0) * INTERVAL;
    send(&child, Signal::TERM);
    let mut stderr = String::new();
    let mut pipe = child.stderr.take().unwrap();
    pipe.read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{stderr}");
    printed_seconds(&stderr) / ((last.1 - first.1) / steps as f64 * STEPS as f64)
}

/// A small model dominated by the optimizer update, and one dominated by its forward and backward passes.
#[test]
fn the_estimated_duration_matches_the_steps() {
    for more in [
        "--set model.d_model=96 --set model.n_layers=1 --set train.micro_batch=1",
        "--set model.d_model=32 --set train.micro_batch=16 --set train.accumulation=2",
    ] {
        // A busy machine lengthens the measurement before the first step, but not the CPU time of the steps: the
        // smallest ratio is the one of the least disturbed measurement.
        let mut ratios = Vec::new();
        while ratios.len() < 10 && ratios.iter().all(|&ratio| ratio >= 3.0) {
            ratios.push(printed_over_used(more));
        }
        let smallest = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        assert!((0.33..3.0).contains(&smallest), "{more}: {ratios:?}");
    }
}

#[test]
fn short_runs_have_no_estimated_duration() {
    let sandbox = Sandbox::with_data();
    let stderr = sandbox.train("--data data --steps 3 --out run").stderr;
    let line = stderr.lines().find(|line| line.starts_with("training "));
    assert_eq!(line.unwrap().matches("; about ").count(), 1, "{stderr}");
}
