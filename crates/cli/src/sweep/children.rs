//! Runs as child processes, several at a time.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, fs, thread};

use emberlm_system::read;

use super::plan::Planned;
use super::progress::Progress;
use super::stopping::{EarlyStop, StopRule};
use crate::error::CliError;
use crate::run_history::{History, Status};

/// The file of a run's output, in its folder.
pub const LOG: &str = "log.txt";
/// Lines of it that are shown when it fails.
const LINES: usize = 8;
/// Between two looks at the runs.
const PAUSE: Duration = Duration::from_millis(200);

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// At its last step.
    Finished,
    /// Stopped before its last step, as asked.
    Stopped,
    /// By the sweep's rule of early stopping.
    StoppedEarly(EarlyStop),
    /// By an error; the last lines of its log.
    Failed(Vec<String>),
}

/// A run in progress.
struct Running<'a> {
    run: &'a Planned,
    child: Child,
    /// Its evaluations that the rule has judged.
    judged: usize,
    /// The decision to stop it early.
    early: Option<EarlyStop>,
}

/// The runs of a sweep, and the rule by which they are stopped early.
#[derive(Clone, Copy, Debug)]
pub struct Judging<'a> {
    /// All runs of the sweep.
    pub runs: &'a [Planned],
    /// The rule.
    pub rule: Option<StopRule>,
}

impl Judging<'_> {
    /// Judges the evaluations of a run after the first `judged`, each as when it was the newest: a run may make several
    /// between two looks.
    fn judge(self, run: &Planned, judged: &mut usize) -> Option<EarlyStop> {
        let rule = self.rule?;
        let evaluations = |run: &Planned| {
            let history = History::read(&run.folder).unwrap_or_default();
            history.evaluations
        };
        let own = evaluations(run);
        let others = self.runs.iter().filter(|other| other.name != run.name);
        let others: Vec<_> = others.map(evaluations).collect();
        // The last step's evaluation ends it anyway.
        let ends = own
            .last()
            .is_some_and(|last| last.step >= run.config.train.steps);
        let from = std::mem::replace(judged, own.len());
        let decision = (from..own.len()).find_map(|at| rule.judge(&own[..=at], &others));
        decision.filter(|_| !ends)
    }
}

/// Returns true if nothing is left to do for a run: it is finished, or was stopped early.
pub fn is_done(run: &Planned) -> bool {
    is_finished(run) || run.stopped_early().is_some()
}

/// Returns true if a run has made its last step.
pub fn is_finished(run: &Planned) -> bool {
    let history = History::read(&run.folder);
    history.is_ok_and(|history| history.status(&run.folder) == Status::Finished)
}

/// Runs them in order, `parallel` at a time, until all have ended. Returns their outcomes in the order in which they ended.
/// Each increase of `asked` asks the runs in progress once to stop; no other run is started after that.
///
/// # Errors
/// A process cannot be started; those in progress are ended first.
pub fn run_all<'a>(
    runs: &[&'a Planned],
    judging: Judging<'_>,
    parallel: usize,
    backend: &[String],
    asked: &AtomicUsize,
    progress: &mut Progress,
) -> Result<Vec<(&'a Planned, Ended)>, CliError> {
    let mut waiting = runs.iter().copied();
    let mut running: Vec<Running<'a>> = Vec::new();
    let mut ended = Vec::new();
    let mut told = 0;
    let mut failure = None;
    loop {
        let stop = asked.load(Ordering::SeqCst);
        while told < stop {
            told += 1;
            running.iter_mut().for_each(Running::stop);
        }
        while stop == 0 && failure.is_none() && running.len() < parallel {
            let Some(run) = waiting.next() else { break };
            match start(run, parallel, backend) {
                Ok(child) => {
                    progress.started(run);
                    running.push(Running {
                        run,
                        child,
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
                one.early = judging.judge(one.run, &mut one.judged);
                if one.early.is_some() {
                    one.stop();
                }
            }
            match one.child.try_wait() {
                Ok(None) => still.push(one),
                Ok(Some(status)) => {
                    let how = how(one.run, one.early.take(), status.success());
                    progress.ended(one.run, &how);
                    ended.push((one.run, how));
                }
                Err(error) => {
                    let how = Ended::Failed(vec![format!("  cannot wait for it: {error}")]);
                    ended.push((one.run, how));
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

/// Starts a run's process in its own process group, so that it receives a terminal's Ctrl-C once, through this program.
fn start(run: &Planned, parallel: usize, backend: &[String]) -> Result<Child, CliError> {
    let program = env::current_exe()
        .map_err(|error| CliError::new(format!("cannot find this program's file: {error}")))?;
    let arguments = run.arguments(backend);
    fs::create_dir_all(&run.folder).map_err(CliError::io("create", &run.folder))?;
    let path = run.folder.join(LOG);
    let log = OpenOptions::new().create(true).append(true).open(&path);
    let log = log.map_err(CliError::io("write", &path))?;
    let errors = log.try_clone().map_err(CliError::io("write", &path))?;
    let mut command = Command::new(&program);
    command.args(arguments);
    command.stdin(Stdio::null()).stdout(log).stderr(errors);
    if parallel > 1 && env::var_os("RAYON_NUM_THREADS").is_none() {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        command.env("RAYON_NUM_THREADS", (cores / parallel).max(1).to_string());
    }
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.spawn().map_err(CliError::io("start", &program))
}

impl Running<'_> {
    /// Asks it to stop with a checkpoint; asked again, it stops at once.
    fn stop(&mut self) {
        // Signalling a process that has just ended fails, which is harmless. A shell's background jobs and their children
        // ignore SIGINT.
        #[cfg(unix)]
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::TERM,
        );
        // Elsewhere a console's Ctrl-C comes by all of its programs.
    }
}

fn how(run: &Planned, early: Option<EarlyStop>, succeeded: bool) -> Ended {
    if !succeeded {
        return Ended::Failed(last_lines(run));
    }
    match early {
        _ if is_finished(run) => Ended::Finished,
        None => Ended::Stopped,
        Some(early) => match early.write(&run.folder) {
            Ok(()) => Ended::StoppedEarly(early),
            Err(error) => Ended::Failed(vec![format!("  {}", error.message())]),
        },
    }
}

/// The last bytes of a file.
fn read_end(path: &Path) -> io::Result<Vec<u8>> {
    const END: u64 = 1 << 14;
    let mut file = read::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(END)))?;
    let mut bytes = Vec::new();
    file.take(END).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn last_lines(run: &Planned) -> Vec<String> {
    let bytes = read_end(&run.folder.join(LOG)).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    last.iter().map(|line| format!("  {line}")).collect()
}
