//! State shared by all checks, and running their child processes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fs, io};

use emberlm_kernels::Precision;
use tempfile::TempDir;

use super::check::Check;
use super::finding::Outcome;
use super::{Size, program};
use crate::backend::Placement;
use crate::error::CliError;

/// The subfolder of the report with the children's output.
pub const LOGS: &str = "logs";

/// Polling interval of child processes.
const POLL: Duration = Duration::from_millis(20);

/// State shared by all checks.
#[derive(Debug)]
pub struct Session {
    /// The backend and device under test.
    pub placement: Placement,
    /// A CPU backend to compare with. `None` if this binary has no other.
    pub reference: Option<Placement>,
    /// The size of the trained and measured models.
    pub size: Size,
    /// A Python with PyTorch selected by the user.
    pub python: Option<PathBuf>,
    /// Training speed by precision, in tokens per second.
    training_speeds: Vec<(Precision, f64)>,
    program: PathBuf,
    /// Working directory of child processes, removed on drop.
    work: TempDir,
    logs: PathBuf,
    check: Check,
    deadline: Instant,
}

/// A child process that has ended.
#[derive(Debug)]
pub struct Finished {
    /// True if the exit code was 0.
    pub succeeded: bool,
    pub stdout: String,
    /// The reason for a failure, from the output.
    pub reason: String,
}

impl Session {
    /// Creates the folders.
    ///
    /// # Errors
    /// Returns an error if a folder cannot be created.
    pub fn new(
        placement: Placement,
        reference: Option<Placement>,
        size: Size,
        python: Option<PathBuf>,
        out: &Path,
    ) -> Result<Self, CliError> {
        let logs = out.join(LOGS);
        fs::create_dir_all(&logs).map_err(CliError::io("create", &logs))?;
        let folder = std::env::temp_dir();
        Ok(Self {
            placement,
            reference,
            size,
            python,
            training_speeds: Vec::new(),
            program: program()?,
            work: TempDir::new().map_err(CliError::io("create a folder in", &folder))?,
            logs,
            check: Check::Operations,
            deadline: Instant::now(),
        })
    }

    /// Starts a check that must end by `deadline`.
    pub fn begin(&mut self, check: Check, deadline: Instant) {
        self.check = check;
        self.deadline = deadline;
    }

    /// Records the training speed for comparison with PyTorch.
    pub fn set_training_speed(&mut self, precision: Precision, tokens_per_second: f64) {
        self.training_speeds.push((precision, tokens_per_second));
    }

    /// The recorded training speed, if measured.
    pub fn training_speed(&self, precision: Precision) -> Option<f64> {
        let mut speeds = self.training_speeds.iter();
        speeds.find_map(|&(of, speed)| (of == precision).then_some(speed))
    }

    /// The working directory of child processes.
    pub fn work(&self) -> &Path {
        self.work.path()
    }

    /// A CPU backend to compare with.
    ///
    /// # Errors
    /// Returns an error if this binary has no backend other than the one under test.
    pub fn reference(&self) -> Result<Placement, Outcome> {
        self.reference.ok_or_else(|| {
            Outcome::skipped("this program has no other CPU backend to compare with")
        })
    }

    /// Returns true if the check's time is used up.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Runs this program with arguments on a backend, for at most `limit`.
    ///
    /// # Errors
    /// Returns an error if the process cannot be started or exceeds the limit.
    pub fn emberlm(
        &self,
        log: &str,
        line: &str,
        placement: Placement,
        limit: Duration,
    ) -> Result<Finished, Outcome> {
        let mut command = Command::new(&self.program);
        command.args(line.split_whitespace());
        command.args(placement.options());
        self.run(log, command, limit)
    }

    /// Runs a command in the working directory and logs its output. Stops it after `limit` or at the check's
    /// deadline.
    ///
    /// # Errors
    /// Returns an error if the process cannot be started or exceeds the limit.
    pub fn run(
        &self,
        log: &str,
        mut command: Command,
        limit: Duration,
    ) -> Result<Finished, Outcome> {
        let path = |kind: &str| {
            let name = format!("{}-{log}.{kind}.txt", self.check);
            self.logs.join(name)
        };
        let (out, err) = (path("stdout"), path("stderr"));
        let left = self.deadline.saturating_duration_since(Instant::now());
        let failed = |error: io::Error| Outcome::failed(format!("cannot run: {error}"));
        let streams = (
            File::create(&out).map_err(failed)?,
            File::create(&err).map_err(failed)?,
        );
        command.current_dir(self.work()).stdin(Stdio::null());
        command.stdout(streams.0).stderr(streams.1);
        let mut child = command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy();
            Outcome::failed(format!("cannot run {program}: {error}"))
        })?;
        let started = Instant::now();
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if started.elapsed() < limit.min(left) => sleep(POLL),
                Ok(None) => {
                    // Killing fails if the process has just exited.
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(out_of_time(limit, left));
                }
                Err(error) => return Err(failed(error)),
            }
        };
        let text = |path: &Path| -> Result<String, Outcome> {
            let bytes = fs::read(path).map_err(failed)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let output = text(&err)?;
        Ok(Finished {
            succeeded: status.success(),
            stdout: text(&out)?,
            reason: match status.code() {
                Some(_) => failure_reason(&output).unwrap_or_else(|| status.to_string()),
                None => format!("{status}: {}", failure_reason(&output).unwrap_or_default()),
            },
        })
    }
}

impl Finished {
    /// Returns the stdout of a successful process.
    ///
    /// # Errors
    /// Returns an error if the process failed.
    pub fn succeeded(self) -> Result<String, Outcome> {
        match self.succeeded {
            true => Ok(self.stdout),
            false => Err(Outcome::failed(self.reason)),
        }
    }
}

/// The outcome of a process that was stopped: failed if it had its full time, skipped if the report's time
/// was up.
fn out_of_time(limit: Duration, left: Duration) -> Outcome {
    let seconds = |time: Duration| time.as_secs_f64();
    match limit <= left {
        true => Outcome::failed(format!("it did not end within {:.0} s", seconds(limit))),
        false => Outcome::skipped(format!(
            "the time was over after {:.0} s; give it more with --minutes",
            seconds(left)
        )),
    }
}

/// Extracts the reason from a failed program's output: the last `error:` line, or the last line.
fn failure_reason(output: &str) -> Option<String> {
    let lines = || {
        output
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    // Graphics drivers print their own errors first, so the last one counts.
    let error = lines().rev().find_map(|line| line.strip_prefix("error: "));
    error.or_else(|| lines().next_back()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_line_is_the_reason() {
        let output =
            "error: XDG_RUNTIME_DIR is not set\nstep 1\nerror: no device\nhint: install a driver\n";
        assert_eq!(failure_reason(output).as_deref(), Some("no device"));
        let traceback = "Traceback:\nModuleNotFoundError: No module named 'torch'\n\n";
        assert_eq!(
            failure_reason(traceback).as_deref(),
            Some("ModuleNotFoundError: No module named 'torch'")
        );
        assert_eq!(failure_reason("\n"), None);
    }

    #[test]
    fn running_out_of_report_time_is_not_a_failure() {
        let [short, long] = [10, 60].map(Duration::from_secs);
        assert!(out_of_time(short, long).is_failure());
        assert!(!out_of_time(long, short).is_failure());
    }
}
