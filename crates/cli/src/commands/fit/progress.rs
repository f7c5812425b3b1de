//! Progress lines on stderr while steps are measured, which takes minutes for large models. With `--json` there are none.

use std::io;
use std::process::Output;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::PlanEstimate;
use super::report::described;
use crate::console;
use crate::output::size;

/// Time between two lines of one measurement.
const INTERVAL: Duration = Duration::from_secs(15);

/// Runs the process of a measurement. Prints a line before it starts, and one per [`INTERVAL`].
///
/// # Errors
/// Returns the process's error.
pub(super) fn observed(
    estimate: &PlanEstimate,
    run: impl FnOnce() -> io::Result<Output>,
) -> io::Result<Output> {
    let plan = described(estimate.plan);
    let predicted = size(estimate.predicted.total);
    console::note(format_args!(
        "measuring {plan} (predicted: {predicted}); --no-measure only predicts"
    ));
    let started = Instant::now();
    let (finished, running) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while running.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let seconds = started.elapsed().as_secs();
                console::note(format_args!("measuring {plan}: {seconds} s"));
            }
        });
        let output = run();
        drop(finished);
        output
    })
}

/// Prints the result of a measurement.
pub(super) fn report(measured: &PlanEstimate) {
    let memory = measured.measured.map_or("-".to_owned(), size);
    let seconds = measured.seconds_per_step.unwrap_or_default();
    console::note(format_args!(
        "measured {}: {memory}, {seconds:.1} s per step",
        described(measured.plan)
    ));
}
