//! Runs a sweep's training runs as child processes, several at a time.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, fs, thread};

use emberlm_system::read;
use emberlm_trainer::folder::check_no_link;

use super::plan::PlannedRun;
use super::progress::Progress;
use super::stopping::{EarlyStop, StopRule};
use crate::error::CliError;
use crate::run_history::{History, Status};

/// The file in a run's folder that captures its output.
pub const LOG: &str = "log.txt";
/// Number of log lines printed when a run fails.
const LINES: usize = 8;
/// Polling interval of the running processes.
const PAUSE: Duration = Duration::from_millis(200);

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunOutcome {
    /// The run reached its last step, or ended early by its own setting.
    Finished,
    /// The user stopped the run before its last step.
    Stopped,
    /// The early-stopping rule ended the run.
    StoppedEarly(EarlyStop),
    /// The run failed, with the last lines of its log.
    Failed(Vec<String>),
}

/// A run in progress.
struct Running<'a> {
    run: &'a PlannedRun,
    child: Child,
    /// True if a launcher started the run.
    launched: bool,
    /// The number of evaluations that the rule has judged so far.
    judged: usize,
    /// Set when the rule has decided to stop the run.
    early: Option<EarlyStop>,
}

/// The early-stopping rule of a sweep and the runs to compare.
#[derive(Clone, Copy, Debug)]
pub struct EarlyStopper<'a> {
    /// All runs of the sweep.
    pub runs: &'a [PlannedRun],
    pub rule: Option<StopRule>,
}

impl EarlyStopper<'_> {
    /// Judges the evaluations after the first `judged`, each as if it were the latest. A run may make several
    /// evaluations between two polls.
    fn judge(self, run: &PlannedRun, judged: &mut usize) -> Option<EarlyStop> {
        let rule = self.rule?;
        let evaluations = |run: &PlannedRun| {
            let history = History::read(&run.folder).unwrap_or_default();
            history.evaluations
        };
        let own = evaluations(run);
        let others = self.runs.iter().filter(|other| other.name != run.name);
        let others: Vec<_> = others.map(evaluations).collect();
        // A run that evaluated its last step ends anyway.
        let ends = own
            .last()
            .is_some_and(|last| last.step >= run.config.train.steps);
        let from = std::mem::replace(judged, own.len());
        let decision = (from..own.len()).find_map(|at| rule.judge(&own[..=at], &others));
        decision.filter(|_| !ends)
    }
}

/// Returns true if a run is finished or was stopped early.
pub fn is_done(run: &PlannedRun) -> bool {
    is_finished(run) || run.stopped_early().is_some()
}

/// Returns true if a run has reached its last step, or has ended early by `train.evaluation.early_stop`.
pub fn is_finished(run: &PlannedRun) -> bool {
    let history = History::read(&run.folder);
    let status = history.map(|history| history.status(&run.folder));
    matches!(status, Ok(Status::Finished | Status::EarlyStopped))
}

/// Runs `runs` in order, `parallel` at a time, and returns their outcomes in the order in which they ended.
/// Each increase of `stop_requests` sends one stop signal to the running processes. No run starts after the
/// first request. `launcher` is the command that starts the processes of a run, such as `mpirun -n 4`; empty for one
/// process.
///
/// # Errors
/// Returns an error if a process cannot be started. Running processes are stopped first.
pub fn run_all<'a>(
    runs: &[&'a PlannedRun],
    stopper: EarlyStopper<'_>,
    parallel: usize,
    backend: &[String],
    launcher: &[String],
    stop_requests: &AtomicUsize,
    progress: &mut Progress,
) -> Result<Vec<(&'a PlannedRun, RunOutcome)>, CliError> {
    let mut waiting = runs.iter().copied();
    let mut running: Vec<Running<'a>> = Vec::new();
    let mut ended = Vec::new();
    let mut handled = 0;
    let mut failure = None;
    loop {
        let stop = stop_requests.load(Ordering::SeqCst);
        while handled < stop {
            handled += 1;
            running.iter_mut().for_each(Running::stop);
        }
        while stop == 0 && failure.is_none() && running.len() < parallel {
            let Some(run) = waiting.next() else { break };
            match start(run, parallel, backend, launcher) {
                Ok(child) => {
                    progress.started(run);
                    running.push(Running {
                        run,
                        child,
                        launched: !launcher.is_empty(),
                        judged: 0,
                        early: None,
                    });
                }
                Err(error) => {
                    running.iter_mut().for_each(Running::stop);
                    failure = Some(error);
                }
            }
        }
        if running.is_empty() {
            break;
        }
        thread::sleep(PAUSE);
        let mut still = Vec::new();
        for mut one in running {
            if progress.look(one.run) && one.early.is_none() {
                one.early = stopper.judge(one.run, &mut one.judged);
                if one.early.is_some() {
                    one.stop();
                }
            }
            match one.child.try_wait() {
                Ok(None) => still.push(one),
                Ok(Some(status)) => {
                    let outcome = outcome(one.run, one.early.take(), status.success());
                    progress.ended(one.run, &outcome);
                    ended.push((one.run, outcome));
                }
                Err(error) => {
                    let outcome =
                        RunOutcome::Failed(vec![format!("  cannot wait for it: {error}")]);
                    ended.push((one.run, outcome));
                }
            }
        }
        running = still;
    }
    match failure {
        None => Ok(ended),
        Some(error) => Err(error),
    }
}

/// Starts a run in its own process group. A terminal's Ctrl-C then reaches it once, through this program.
fn start(
    run: &PlannedRun,
    parallel: usize,
    backend: &[String],
    launcher: &[String],
) -> Result<Child, CliError> {
    let program = env::current_exe()
        .map_err(|error| CliError::new(format!("cannot find this program's file: {error}")))?;
    let arguments = run.arguments(backend);
    fs::create_dir_all(&run.folder).map_err(CliError::io("create", &run.folder))?;
    let path = run.folder.join(LOG);
    check_no_link(&path)?;
    let log = OpenOptions::new().create(true).append(true).open(&path);
    let log = log.map_err(CliError::io("write", &path))?;
    let errors = log.try_clone().map_err(CliError::io("write", &path))?;
    let mut words = launcher.iter().map(OsString::from);
    let first = words.next();
    let started = first.clone().unwrap_or_else(|| program.clone().into());
    let mut command = Command::new(&started);
    command.args(words);
    if first.is_some() {
        command.arg(&program);
    }
    command.args(arguments);
    command.stdin(Stdio::null()).stdout(log).stderr(errors);
    if parallel > 1 && env::var_os("RAYON_NUM_THREADS").is_none() {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        command.env("RAYON_NUM_THREADS", (cores / parallel).max(1).to_string());
    }
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command
        .spawn()
        .map_err(CliError::io("start", Path::new(&started)))
}

impl Running<'_> {
    /// Asks the run to write a checkpoint and stop. A second request stops it immediately.
    fn stop(&mut self) {
        // Signalling a process that has just exited fails, which is harmless. SIGTERM is used because
        // background jobs of a shell and their children ignore SIGINT. Launchers pass SIGUSR1 on, but Open MPI's
        // kills the ranks soon after a SIGTERM.
        #[cfg(unix)]
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            match self.launched {
                true => rustix::process::Signal::USR1,
                false => rustix::process::Signal::TERM,
            },
        );
        // On other systems the console delivers Ctrl-C to all of its processes.
    }
}

fn outcome(run: &PlannedRun, early: Option<EarlyStop>, succeeded: bool) -> RunOutcome {
    if !succeeded {
        return RunOutcome::Failed(last_lines(run));
    }
    match early {
        _ if is_finished(run) => RunOutcome::Finished,
        None => RunOutcome::Stopped,
        Some(early) => match early.write(&run.folder) {
            Ok(()) => RunOutcome::StoppedEarly(early),
            Err(error) => RunOutcome::Failed(vec![format!("  {}", error.message())]),
        },
    }
}

/// Reads the last 16 KiB of a file.
fn read_end(path: &Path) -> io::Result<Vec<u8>> {
    const END: u64 = 1 << 14;
    let mut file = read::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(END)))?;
    let mut bytes = Vec::new();
    file.take(END).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn last_lines(run: &PlannedRun) -> Vec<String> {
    let bytes = read_end(&run.folder.join(LOG)).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    last.iter().map(|line| format!("  {line}")).collect()
}
