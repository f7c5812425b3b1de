//! Opening a device, whose runtime panics where there is none.

use std::sync::OnceLock;

use super::{BackendName, quietly};
use crate::error::CliError;

/// Starts the process's one GPU with `start`, the first time only.
///
/// Where a machine has no such device or driver, Burn's runtimes panic: here that becomes an error.
pub fn start(name: BackendName, start: impl FnOnce()) -> Result<(), CliError> {
    static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
    STARTED
        .get_or_init(|| quietly(start))
        .clone()
        .map_err(|reason| {
            CliError::new(format!(
                "the {name} backend finds no device it can use: {reason}"
            ))
            .hint("see what this machine has: emberlm devices")
            .hint("check that the machine's GPU driver is installed")
            .hint("or compute on the CPU: --backend flex")
        })
}

/// Makes the runtime open its device.
#[cfg(any(feature = "cuda", feature = "rocm"))]
pub fn touch<B: burn::tensor::backend::Backend>(device: &B::Device) {
    if let Err(error) = B::sync(device) {
        std::panic::panic_any(error.to_string());
    }
}
