//! State common to all checks, and the child processes that do their work.

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

/// The folder of the children's output, within the report's.
pub const LOGS: &str = "logs";

/// The interval at which a child is polled.
const POLL: Duration = Duration::from_millis(20);

/// State common to all checks.
#[derive(Debug)]
pub struct Session {
    /// The backend and device that the report is about.
    pub placement: Placement,
    /// A CPU backend to compare with; none where this program has no other.
    pub reference: Option<Placement>,
    /// The size of models that are trained and timed.
    pub size: Size,
    /// The Python that has PyTorch, where the user has named one.
    pub python: Option<PathBuf>,
    /// Tokens per second of training.
    training_speeds: Vec<(Precision, f64)>,
    program: PathBuf,
    /// The working directory of child processes; removed at the end.
    work: TempDir,
    logs: PathBuf,
    check: Check,
    deadline: Instant,
}

/// A child process that has ended.
#[derive(Debug)]
pub struct Finished {
    /// True if its exit code was 0.
    pub succeeded: bool,
    /// Its stdout.
    pub stdout: String,
    /// Why it failed, by its own words.
    pub reason: String,
}

impl Session {
    /// Prepares the folders.
    ///
    /// # Errors
    /// A folder cannot be made.
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

    /// Begins a check that has to end by `deadline`.
    pub fn begin(&mut self, check: Check, deadline: Instant) {
        self.check = check;
        self.deadline = deadline;
    }

    /// Keeps the speed of training, to be compared with PyTorch's.
    pub fn set_training_speed(&mut self, precision: Precision, tokens_per_second: f64) {
        self.training_speeds.push((precision, tokens_per_second));
    }

    /// The speed of training, where it was measured.
    pub fn training_speed(&self, precision: Precision) -> Option<f64> {
        let mut speeds = self.training_speeds.iter();
        speeds.find_map(|&(of, speed)| (of == precision).then_some(speed))
    }

    /// The folder in which children run.
    pub fn work(&self) -> &Path {
        self.work.path()
    }

    /// A CPU backend to compare with.
    ///
    /// # Errors
    /// This program has no backend other than the one under test.
    pub fn reference(&self) -> Result<Placement, Outcome> {
        self.reference.ok_or_else(|| {
            Outcome::skipped("this program has no other CPU backend to compare with")
        })
    }

    /// Returns true if the check's time is over.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Runs this program with a command line on a backend, for at most `limit`.
    ///
    /// # Errors
    /// It could not be started, or did not end in time.
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

    /// Runs a command in the work folder, with its output in a log, for at most `limit` and no longer than the check.
    ///
    /// # Errors
    /// It could not be started, or did not end in time.
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
        let failed = |error: io::Error| Outcome::failed(format!("it cannot be run: {error}"));
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
                    // It may have ended by itself in the meantime.
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
        let said = text(&err)?;
        Ok(Finished {
            succeeded: status.success(),
            stdout: text(&out)?,
            reason: match status.code() {
                Some(_) => last_words(&said).unwrap_or_else(|| status.to_string()),
                None => format!("{status}: {}", last_words(&said).unwrap_or_default()),
            },
        })
    }
}

impl Finished {
    /// The stdout of a process that succeeded.
    ///
    /// # Errors
    /// It failed.
    pub fn succeeded(self) -> Result<String, Outcome> {
        match self.succeeded {
            true => Ok(self.stdout),
            false => Err(Outcome::failed(self.reason)),
        }
    }
}

/// A process that had its full time and did not end has failed; one whose time was cut by the report's was skipped.
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

/// The reason in the output of a failed program: the line of the error, or the last one.
fn last_words(said: &str) -> Option<String> {
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
    // Graphics drivers print their own errors first.
    let error = lines().rev().find_map(|line| line.strip_prefix("error: "));
    error.or_else(|| lines().next_back()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_program_is_its_reason() {
        let said =
            "error: XDG_RUNTIME_DIR is not set\nstep 1\nerror: no device\nhint: install a driver\n";
        assert_eq!(last_words(said).as_deref(), Some("no device"));
        let traceback = "Traceback:\nModuleNotFoundError: No module named 'torch'\n\n";
        assert_eq!(
            last_words(traceback).as_deref(),
            Some("ModuleNotFoundError: No module named 'torch'")
        );
        assert_eq!(last_words("\n"), None);
    }

    #[test]
    fn time_that_the_report_cut_is_no_failure() {
        let [short, long] = [10, 60].map(Duration::from_secs);
        assert!(out_of_time(short, long).is_failure());
        assert!(!out_of_time(long, short).is_failure());
    }
}
