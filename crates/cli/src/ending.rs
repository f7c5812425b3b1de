//! Process exit while a GPU may still be computing.
//!
//! A normal exit runs the handlers that libraries registered. The GPU driver's handler frees its state while
//! the driver's threads may still compute, so the process ends in a segmentation fault instead of with its
//! exit code.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::console;

static GPU_USED: AtomicBool = AtomicBool::new(false);

/// Records that a GPU driver has threads in this process.
#[cfg_attr(not(feature = "gpu"), expect(dead_code))]
pub fn mark_gpu_used() {
    GPU_USED.store(true, Ordering::Relaxed);
}

/// Ends the process immediately, without running exit handlers.
pub fn at_once(code: i32) -> ! {
    signal_hook::low_level::exit(code)
}

/// The return value of `main`. If a GPU was used, this ends the process instead of returning.
pub fn of(code: u8) -> ExitCode {
    if GPU_USED.load(Ordering::Relaxed) {
        console::flush();
        at_once(code.into());
    }
    ExitCode::from(code)
}
