//! The end of the process while a GPU may still be computing.
//!
//! At an ordinary exit what libraries have registered for it is run. A GPU's driver takes itself apart there beside its
//! own threads, and where those compute, a process that was to end with a code ends in a segmentation fault.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::console;

static BESIDE_A_GPU: AtomicBool = AtomicBool::new(false);

/// From now on a GPU's driver has threads in this process.
#[cfg_attr(not(feature = "gpu"), expect(dead_code))]
pub fn beside_a_gpu() {
    BESIDE_A_GPU.store(true, Ordering::Relaxed);
}

/// Ends the process with an exit code at once, with nothing run for the exit.
pub fn at_once(code: i32) -> ! {
    signal_hook::low_level::exit(code)
}

/// The return value of `main`. With a GPU the process ends before it is returned.
pub fn of(code: u8) -> ExitCode {
    if BESIDE_A_GPU.load(Ordering::Relaxed) {
        console::flush();
        at_once(code.into());
    }
    ExitCode::from(code)
}
