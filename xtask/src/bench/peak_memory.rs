//! Runs a program and observes its peak memory, as the operating system reports it.

use std::{
    fs,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use crate::{error::Error, workspace};

/// Interval of looking at a process's peak memory, which only grows: the last value is at most this old.
const INTERVAL: Duration = Duration::from_millis(10);

/// Runs a program. Returns its stdout and its peak memory in MiB.
pub fn run(command: &mut Command) -> Result<(String, f64), Error> {
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    let line = workspace::shown(command);
    let failed = |source| Error::Start {
        command: line.clone(),
        source,
    };
    let child = command.spawn().map_err(failed)?;
    let process = child.id();
    let watch = thread::spawn(move || {
        let mut peak = None;
        // A process that has ended has no memory, even before its parent waits for it.
        while let Some(now) = peak_kib(process) {
            peak = Some(now);
            thread::sleep(INTERVAL);
        }
        peak
    });
    let output = child.wait_with_output().map_err(failed)?;
    let peak = watch.join().ok().flatten();
    if !output.status.success() {
        return Err(Error::Failed {
            command: line,
            status: output.status,
        });
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((text, peak.map_or(f64::NAN, |kib| kib as f64 / 1024.0)))
}

/// Peak resident memory of a process in KiB. `None` if it has ended, or the system does not report it.
fn peak_kib(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}
