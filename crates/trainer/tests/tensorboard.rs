//! Event files are byte-identical to those of TensorBoard's own classes (`fixtures/tensorboard/make.py`).

use std::fs;

use emberlm_trainer::events::{Ending, Event};
use emberlm_trainer::tensorboard::{FOLDER, TensorBoard};

const EXPECTED: &[u8] = include_bytes!("fixtures/tensorboard/events.bin");

fn pace(time: f64, step: usize, tokens_per_second: f64, rest: Option<(f64, u64)>) -> Event {
    Event::Pace {
        time,
        step,
        tokens_per_second,
        utilization: rest.map(|(utilization, _)| utilization),
        memory_mib: rest.map(|(_, memory)| memory),
        device_in_use: None,
        device_reserved: None,
        seconds_left: 1.0,
    }
}

fn begun(step: usize) -> Event {
    Event::Begun {
        time: 1_700_000_007.0,
        step,
        steps: 100,
        backend: "flex".into(),
        version: "1".into(),
        floor: None,
        uniform_loss: None,
        metrics: Vec::new(),
    }
}

fn write(log: &mut TensorBoard) {
    for (time, event) in [
        (0.0, begun(0)),
        (0.0, begun(20)),
        (
            1_700_000_001.25,
            Event::Step {
                step: 30,
                tokens: 3000,
                learnt: None,
                loss: 1.5,
                perplexity: Some(4.481_689_070_3),
                gradient_norm: 0.25,
                learning_rate: 0.001,
                metrics: Default::default(),
            },
        ),
        (
            1_700_000_002.25,
            Event::Skipped {
                step: 31,
                loss: None,
                gradient_norm: None,
                reason: "its loss is NaN".into(),
            },
        ),
        (0.0, pace(1_700_000_008.0, 40, 12_345.5, Some((0.375, 321)))),
        (0.0, pace(1_700_000_009.0, 41, 0.0, None)),
        (
            1_700_000_003.25,
            Event::Evaluation {
                step: 3_000_000_000,
                loss: f64::INFINITY,
                perplexity: Some(f64::INFINITY),
                tokens: 1,
                datasets: Vec::new(),
                metrics: Default::default(),
            },
        ),
        (
            1_700_000_004.25,
            Event::Sample {
                step: 50,
                text: "Käse\n\"火\"\0".into(),
            },
        ),
        (
            0.0,
            Event::Checkpoint {
                time: 1.0,
                step: 50,
            },
        ),
        (
            0.0,
            Event::Ended {
                time: 1.0,
                step: 50,
                how: Ending::Finished,
            },
        ),
    ] {
        log.write_at(&event, time).unwrap();
    }
}

#[test]
fn files_are_byte_identical_to_tensorboard_s() {
    let run = tempfile::tempdir().unwrap();
    let mut log = TensorBoard::create(run.path(), 1_700_000_000.5).unwrap();
    write(&mut log);
    let file = run
        .path()
        .join(FOLDER)
        .join("events.out.tfevents.1700000000.emberlm");
    assert_eq!(fs::read(file).unwrap(), EXPECTED);
}

#[test]
fn a_resumed_run_creates_another_file() {
    let run = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        TensorBoard::create(run.path(), 5.0).unwrap();
    }
    let names = fs::read_dir(run.path().join(FOLDER)).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(
        names,
        [
            "events.out.tfevents.0000000005.emberlm",
            "events.out.tfevents.0000000005.emberlm.001",
            "events.out.tfevents.0000000005.emberlm.002"
        ]
    );
}

#[test]
fn an_uncreatable_directory_is_named() {
    let run = tempfile::tempdir().unwrap();
    fs::write(run.path().join(FOLDER), "a file").unwrap();
    let error = TensorBoard::create(run.path(), 5.0)
        .unwrap_err()
        .to_string();
    assert!(error.contains("tensorboard: create"), "{error}");
}
