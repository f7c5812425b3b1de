//! Signals that ask the program to stop: Ctrl-C (SIGINT), SIGTERM, and a closed terminal (SIGHUP); in training
//! also SIGUSR1, the only one that Open MPI's launcher passes on without killing the ranks soon after.
//!
//! A signal that was ignored at startup stays ignored. `nohup` and background jobs of shells rely on this.

use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::error::CliError;

/// Calls `handler` on a dedicated thread each time a stop signal arrives.
///
/// # Errors
/// Returns an error if no signal handler can be installed.
pub fn listen(handler: impl FnMut() + Send + 'static) -> Result<(), CliError> {
    listen_to(&[SIGINT, SIGTERM, SIGHUP], handler)
}

/// [`listen`] in a training run, which SIGUSR1 stops too.
///
/// # Errors
/// Returns an error if no signal handler can be installed.
pub fn listen_in_training(handler: impl FnMut() + Send + 'static) -> Result<(), CliError> {
    listen_to(&[SIGINT, SIGTERM, SIGHUP, SIGUSR1], handler)
}

fn listen_to(signals: &[i32], mut handler: impl FnMut() + Send + 'static) -> Result<(), CliError> {
    let wanted = signals.iter().copied();
    let wanted = wanted.filter(|&signal| !is_ignored(signal));
    let mut signals = Signals::new(wanted).map_err(refused)?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || signals.forever().for_each(|_| handler()))
        .map_err(refused)?;
    Ok(())
}

/// The error for a signal handler that cannot be installed.
pub fn refused(error: std::io::Error) -> CliError {
    CliError::new(format!("cannot listen for signals: {error}"))
}

/// Returns true if a signal was ignored before this program installed a handler. Only Linux reports this
/// without unsafe code, so other systems return false.
pub fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bit = u32::try_from(signal - 1)
        .ok()
        .and_then(|at| 1_u64.checked_shl(at));
    matches!((mask, bit), (Some(mask), Some(bit)) if mask & bit != 0)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_detected() {
        // Rust's runtime ignores SIGPIPE. No test ignores SIGTERM.
        assert!(is_ignored(signal_hook::consts::SIGPIPE));
        assert!(!is_ignored(SIGTERM));
        assert!(!is_ignored(0));
    }
}
