//! Runs a program and observes its peak memory, as the operating system reports it.

use std::{
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use crate::{error::Error, served::process::memory};

/// Interval of looking at a process's peak memory, which only grows: the last value is at most this old.
const INTERVAL: Duration = Duration::from_millis(10);

/// Runs a program. Returns its stdout and its peak memory in bytes.
pub fn run(command: &mut Command) -> Result<(String, f64), Error> {
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    let child = command.spawn().map_err(Error::start(command))?;
    let process = child.id();
    let watch = thread::spawn(move || {
        let mut peak = None;
        // A process that has ended has no memory, even before its parent waits for it.
        while let Some(now) = memory(process, "VmHWM:") {
            peak = Some(now);
            thread::sleep(INTERVAL);
        }
        peak
    });
    let output = child.wait_with_output().map_err(Error::start(command))?;
    let peak = watch.join().ok().flatten();
    if !output.status.success() {
        return Err(Error::failed(command, output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((text, peak.map_or(f64::NAN, |bytes| bytes as f64)))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_peak_of_a_process_is_measured() {
        // `dd` holds one block of 64 MiB.
        let mut command = Command::new("dd");
        let block = ["if=/dev/zero", "of=/dev/null", "bs=64M", "count=40"];
        command.args(block).arg("status=none");
        let (output, peak) = run(&mut command).unwrap();
        assert_eq!(output, "");
        let mib = peak / f64::from(1 << 20);
        assert!((64.0..100.0).contains(&mib), "{mib}");
    }

    #[test]
    fn a_failure_has_the_command() {
        let mut command = Command::new("cat");
        let error = run(command.arg("/nowhere")).unwrap_err().to_string();
        assert!(error.starts_with("`cat /nowhere` failed: "), "{error}");
    }
}
