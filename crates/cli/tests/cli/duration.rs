//! The estimated duration that `train` prints before its first step.

use std::io::Read;

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

/// The ratio of a run's printed duration to the one extrapolated from its first 160 steps.
fn printed_over_measured(more: &str) -> f64 {
    let sandbox = Sandbox::with_data();
    let line = format!("--steps 200000 --set train.log_interval=20 {more}");
    let mut child = sandbox.start_training("", &line);
    wait_until("some steps", || sandbox.events_so_far("run", "pace") > 8);
    send(&child, Signal::TERM);
    let mut stderr = String::new();
    let mut pipe = child.stderr.take().unwrap();
    pipe.read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{stderr}");
    let left = &sandbox.events("run", "pace")[8]["seconds_left"];
    printed_seconds(&stderr) / left.as_f64().unwrap()
}

/// A small model dominated by the optimizer update, and one dominated by its forward and backward passes.
#[test]
fn the_estimated_duration_matches_the_steps() {
    for more in [
        "--set model.d_model=96 --set model.n_layers=1 --set train.micro_batch=1",
        "--set model.d_model=32 --set train.micro_batch=16 --set train.accumulation=2",
    ] {
        // Concurrent tests affect the timing. If the first ratio is off, takes the median of three runs.
        let mut ratios = vec![printed_over_measured(more)];
        if !(0.33..3.0).contains(&ratios[0]) {
            ratios.extend((0..2).map(|_| printed_over_measured(more)));
        }
        ratios.sort_by(f64::total_cmp);
        let median = ratios[ratios.len() / 2];
        assert!((0.33..3.0).contains(&median), "{more}: {ratios:?}");
    }
}

#[test]
fn short_runs_have_no_estimated_duration() {
    let sandbox = Sandbox::with_data();
    let stderr = sandbox.train("--data data --steps 3 --out run").stderr;
    let line = stderr.lines().find(|line| line.starts_with("training "));
    assert_eq!(line.unwrap().matches("; about ").count(), 1, "{stderr}");
}
