//! Training on an asynchronous device: when the host waits for it, and its memory. Uses a software device if
//! there is no other.
//!
//! Each test runs in a separate process, whose reads of the device and whose memory it counts.

use std::process::Command;

use burn::backend::{Autodiff, Vulkan};
use burn::tensor::Device;
use emberlm_kernels::{Backend, Precision};
use emberlm_trainer::config::{OutliersConfig, SkipConfig};
use emberlm_trainer::events::{self, Event};
use emberlm_trainer::peak::matrix_product;
use emberlm_trainer::read::reads;

use crate::common::{TestFolder, train};

type B = Autodiff<Vulkan>;

/// The variable that names the test of this process.
const ALONE: &str = "EMBERLM_TEST_ALONE";

/// Runs the test `name` of this module in another process.
#[track_caller]
fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var(ALONE).is_ok_and(|own| own == name) {
        return test();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let path = format!("behind::{name}");
    command
        .args([&path, "--exact", "--nocapture"])
        .env(ALONE, name);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{errors}"
    );
}

#[test]
fn steps_are_read_only_when_something_is_due() {
    alone("steps_are_read_only_when_something_is_due", || {
        let place = TestFolder::new(0);
        let mut config = place.config();
        config.train.steps = 20;
        config.train.log_interval = 10;
        config.train.evaluation.interval = 20;
        // Ten windows in one batch.
        config.train.evaluation.tokens = 160;
        let mut read_in = |out: &str| {
            let before = reads();
            train::<B>(&place, config.clone(), out).unwrap();
            config.train.skip = SkipConfig::Outliers(OutliersConfig {
                deviations: 9.0,
                ..OutliersConfig::default()
            });
            reads() - before
        };
        // Steps 1, 10 and 20, and one evaluation.
        assert_eq!(read_in("due"), 4);
        // Outlier skipping reads every step.
        assert_eq!(read_in("every"), 21);
    });
}

/// The step, bytes in use and bytes reserved of each log line.
fn memory(place: &TestFolder, run: &str) -> Vec<(usize, u64, u64)> {
    let events = events::read(&place.path(run)).unwrap().events;
    let lines = events.into_iter().filter_map(|event| match event {
        Event::Pace {
            step,
            device_in_use,
            device_reserved,
            ..
        } => Some((step, device_in_use.unwrap(), device_reserved.unwrap())),
        _ => None,
    });
    lines.collect()
}

/// Asserts that the device holds no more memory after step `late` of the run than after step `early`.
#[track_caller]
fn assert_as_much(place: &TestFolder, early: usize, late: usize) {
    let lines = memory(place, "run");
    println!("{lines:?}");
    let at = |step: usize| *lines.iter().find(|line| line.0 == step).unwrap();
    let ((_, used, reserved), (_, used_late, reserved_late)) = (at(early), at(late));
    assert!(
        used_late <= used + used / 20,
        "{used} in use, then {used_late}"
    );
    assert!(
        reserved_late <= reserved,
        "{reserved} reserved, then {reserved_late}"
    );
}

#[test]
fn memory_does_not_grow() {
    alone("memory_does_not_grow", || {
        let place = TestFolder::new(0);
        let mut config = place.config();
        config.train.steps = 300;
        config.train.log_interval = 25;
        config.train.evaluation.interval = 300;
        config.train.checkpoints.interval = 300;
        train::<B>(&place, config, "run").unwrap();
        assert_as_much(&place, 50, 300);
    });
}

/// A run longer than ten seconds measures the peak between two of its steps.
#[test]
fn the_peak_measurement_releases_its_memory() {
    alone("the_peak_measurement_releases_its_memory", || {
        let _place = TestFolder::new(0);
        let device = Device::<Vulkan>::default();
        let reserved = || <Vulkan>::memory(&device).unwrap().reserved;
        matrix_product::<Vulkan>(Precision::F32, &device);
        let before = reserved();
        matrix_product::<Vulkan>(Precision::F32, &device);
        assert_eq!(reserved(), before);
        // Two factors and a product of 512 x 512 in f32.
        assert!(before < 3 << 20, "{before} bytes are still reserved");
    });
}

#[test]
fn an_evaluation_releases_its_memory() {
    alone("an_evaluation_releases_its_memory", || {
        let place = TestFolder::new(0);
        let mut config = place.config();
        // The widest tensors of an evaluation of all 55 windows have 3.6 MB each; those of a step with two
        // windows 131 kB.
        config.model.feed_forward.width = Some(1024);
        config.train.steps = 30;
        config.train.log_interval = 10;
        config.train.evaluation.interval = 15;
        config.train.evaluation.batch = 64;
        config.train.evaluation.tokens = 0;
        // A checkpoint that is being written holds the weights too, for as long as the disk takes.
        config.train.checkpoints.at_evaluations = false;
        train::<B>(&place, config, "run").unwrap();
        assert_as_much(&place, 10, 20);
    });
}
