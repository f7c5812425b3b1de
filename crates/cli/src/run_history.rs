//! A run's events as curves and figures, for commands that show or compare runs.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use emberlm_system::read;
use emberlm_trainer::RunFolder;
use emberlm_trainer::events::{self, EVENTS_FILE, Ending, Event, Events, LayerNorms};
use emberlm_trainer::folder::CONFIG_FILE;
use emberlm_trainer::metrics::{self, Metric, Phase};
use serde::Serialize;

use crate::error::CliError;
use crate::run_folders;

/// The contents of a run's `events.jsonl`, in step order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// Logged steps.
    pub steps: Vec<Step>,
    /// Evaluations.
    pub evaluations: Vec<EvaluationPoint>,
    /// Steps whose update was skipped.
    pub skipped: Vec<SkippedStep>,
    /// Throughput readings.
    pub paces: Vec<PacePoint>,
    /// Metrics declared by the run's hooks.
    pub metrics: Vec<Metric>,
    /// Steps whose norms by layer were recorded, with these norms.
    pub norms: Vec<(usize, Vec<LayerNorms>)>,
    /// Metric readings after training steps, by name.
    pub trained: Series,
    /// Metric readings after evaluations, by name.
    pub validated: Series,
    /// Total number of steps, if recorded.
    pub planned: Option<usize>,
    /// The lowest achievable validation loss, if known.
    pub floor: Option<f64>,
    /// The run's outcome, if it ended and was not resumed.
    pub ended: Option<Ending>,
    /// Time of the last timed event, in Unix seconds.
    pub time: Option<f64>,
    /// One message per damaged or missing line of the file.
    pub damage: Vec<String>,
}

/// Metric readings by name: pairs of step and value.
pub type Series = BTreeMap<String, Vec<(usize, f64)>>;

/// A logged training step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub step: usize,
    pub tokens: u64,
    pub loss: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvaluationPoint {
    pub step: usize,
    pub loss: f64,
}

/// A step whose update was skipped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SkippedStep {
    pub step: usize,
    pub loss: Option<f64>,
    pub gradient_norm: Option<f64>,
}

/// Throughput at a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacePoint {
    pub step: usize,
    /// Training time since the start, excluding the time between stop and resume.
    pub seconds: f64,
    pub tokens_per_second: f64,
}

emberlm_system::named! {
    /// The state of a run.
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Status {
        /// A trainer holds the run's lock.
        Running = "running",
        /// The run reached its last step.
        Finished = "finished",
        /// The validation loss did not improve for `train.evaluation.early_stop` evaluations.
        EarlyStopped = "early-stopped",
        /// The user stopped the run.
        Stopped = "stopped",
        /// An error ended the run.
        Failed = "failed",
        /// The log has no end: the process was killed or the machine went down.
        Interrupted = "interrupted",
    }
}

impl Status {
    /// Returns the state of the run in a folder. Reads only the last event.
    pub fn of(run: &Path) -> Self {
        let ended =
            last_line(&run.join(EVENTS_FILE)).and_then(|line| serde_json::from_str(&line).ok());
        let ended = match ended {
            Some(Event::Ended { how, .. }) => Some(how),
            _ => None,
        };
        Self::new(run, ended)
    }

    fn new(run: &Path, ended: Option<Ending>) -> Self {
        match ended {
            _ if RunFolder::is_held(run) => Self::Running,
            Some(Ending::Finished) => Self::Finished,
            Some(Ending::EarlyStopped) => Self::EarlyStopped,
            Some(Ending::Interrupted) => Self::Stopped,
            Some(Ending::Failed) => Self::Failed,
            None => Self::Interrupted,
        }
    }
}

impl History {
    /// Reads a run's history, which may have no steps yet.
    ///
    /// # Errors
    /// Returns an error if the folder is not a run or its events cannot be read.
    pub fn read(run: &Path) -> Result<Self, CliError> {
        let shown = run.display();
        let list = "a run is a folder that `emberlm train` created; `emberlm runs DIR` lists runs";
        if !run.exists() {
            return Err(run_folders::missing(run));
        }
        if run.is_file() {
            return Err(run_folders::not_a_folder(run));
        }
        if !run.join(EVENTS_FILE).exists() {
            let message = match run.join(CONFIG_FILE).exists() {
                true => format!("the run {shown} has not written any event yet"),
                false => format!("{shown} is not a run: it has no {EVENTS_FILE}"),
            };
            return Err(CliError::new(message).hint(list));
        }
        let Events { events, damage } = events::read(run)?;
        let log = run.join(EVENTS_FILE);
        let named = |sentence| format!("{}: {sentence}", log.display());
        Ok(Self {
            damage: damage.sentences().map(named).collect(),
            ..Self::of(events)
        })
    }

    /// Collects events into a history.
    pub fn of(events: impl IntoIterator<Item = Event>) -> Self {
        let mut this = Self::default();
        let mut clock: Option<f64> = None;
        let mut seconds = 0.0;
        for event in events {
            this.read_metrics(&event);
            match event {
                Event::Begun {
                    time,
                    steps,
                    floor,
                    metrics,
                    ..
                } => {
                    if !metrics.is_empty() {
                        this.metrics = metrics;
                    }
                    this.planned = Some(steps);
                    this.floor = floor.or(this.floor);
                    this.ended = None;
                    seconds = this.paces.last().map_or(0.0, |pace| pace.seconds);
                    clock = Some(time);
                    this.time = Some(time);
                }
                Event::Step {
                    step, tokens, loss, ..
                } => this.steps.push(Step { step, tokens, loss }),
                Event::Norms { step, layers } => this.norms.push((step, layers)),
                Event::Skipped {
                    step,
                    loss,
                    gradient_norm,
                    ..
                } => this.skipped.push(SkippedStep {
                    step,
                    loss,
                    gradient_norm,
                }),
                Event::Evaluation { step, loss, .. } => {
                    this.evaluations.push(EvaluationPoint { step, loss });
                }
                Event::Pace {
                    time,
                    step,
                    tokens_per_second,
                    ..
                } => {
                    seconds += clock.map_or(0.0, |clock| (time - clock).max(0.0));
                    clock = Some(time);
                    this.time = Some(time);
                    this.paces.push(PacePoint {
                        step,
                        seconds,
                        tokens_per_second,
                    });
                }
                Event::Checkpoint { time, .. } | Event::CheckpointFailed { time, .. } => {
                    this.time = Some(time);
                }
                Event::Ended { time, how, .. } => {
                    this.time = Some(time);
                    this.ended = Some(how);
                }
                Event::Sample { .. } => {}
            }
        }
        this
    }

    fn read_metrics(&mut self, event: &Event) {
        let Some((phase, readings)) = event.readings() else {
            return;
        };
        let series = match phase {
            Phase::Validation => &mut self.validated,
            Phase::Training | Phase::Both => &mut self.trained,
        };
        for (name, value) in readings {
            match series.get_mut(name) {
                Some(points) => points.push((event.step(), value)),
                None => {
                    series.insert(name.to_owned(), vec![(event.step(), value)]);
                }
            }
        }
    }

    /// The declaration of a metric, if the run has readings of it.
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        let read = self.trained.contains_key(name) || self.validated.contains_key(name);
        let own = self.metrics.iter().find(|metric| metric.name == name);
        metrics::find(name).or(own).filter(|_| read)
    }

    /// The evaluation with the lowest finite loss. The first one wins ties.
    pub fn best(&self) -> Option<EvaluationPoint> {
        let numbers = self.evaluations.iter().filter(|e| e.loss.is_finite());
        numbers.copied().min_by(|a, b| a.loss.total_cmp(&b.loss))
    }

    /// The latest evaluation.
    pub fn last_evaluation(&self) -> Option<EvaluationPoint> {
        self.evaluations.last().copied()
    }

    /// The last recorded step.
    pub fn step(&self) -> usize {
        let logged = self.steps.last().map_or(0, |point| point.step);
        let evaluated = self.evaluations.last().map_or(0, |point| point.step);
        let skipped = self.skipped.last().map_or(0, |point| point.step);
        logged.max(evaluated).max(skipped)
    }

    /// Number of tokens trained on by `step`.
    pub fn tokens_at(&self, step: usize) -> Option<f64> {
        at(&self.steps, |point| (point.step, point.tokens as f64), step)
    }

    /// Seconds of training by `step`.
    pub fn seconds_at(&self, step: usize) -> Option<f64> {
        at(&self.paces, |pace| (pace.step, pace.seconds), step)
    }

    /// The learning rate of a step.
    pub fn learning_rate_at(&self, step: usize) -> Option<f64> {
        at(self.trained.get("learning_rate")?, |&reading| reading, step)
    }

    /// The state of the run in `run`.
    pub fn status(&self, run: &Path) -> Status {
        Status::new(run, self.ended)
    }
}

/// Returns the last complete line of a regular file. Lines must not exceed 64 KiB.
fn last_line(path: &Path) -> Option<String> {
    const LIMIT: u64 = 1 << 16;
    let mut file = read::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LIMIT)))
        .ok()?;
    let mut end = Vec::new();
    // The file may have grown since its length was read, so the limit is doubled.
    file.take(2 * LIMIT).read_to_end(&mut end).ok()?;
    let whole = end.iter().rposition(|&byte| byte == b'\n')?;
    let line = end[..whole].rsplit(|&byte| byte == b'\n').next()?;
    String::from_utf8(line.to_vec()).ok()
}

/// Interpolates a quantity linearly between known steps. It starts from 0 at step 0 and is constant after the
/// last.
fn at<T>(known: &[T], of: impl Fn(&T) -> (usize, f64), step: usize) -> Option<f64> {
    let after = known.partition_point(|point| of(point).0 < step);
    let before = after.checked_sub(1).and_then(|at| known.get(at)).map(&of);
    let Some((there, value)) = known.get(after).map(&of) else {
        return before.map(|(_, value)| value);
    };
    let (from, start) = before.unwrap_or((0, 0.0));
    // Subtract as floats: steps can decrease in damaged events.
    let share = (step as f64 - from as f64) / (there as f64 - from as f64).max(1.0);
    Some(start + share * (value - start))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use emberlm_trainer::folder::LOCK_FILE;

    use super::*;

    fn step(step: usize, loss: f64) -> Event {
        Event::Step {
            step,
            tokens: 100 * step as u64,
            learnt: None,
            loss,
            perplexity: Some(loss.exp()),
            gradient_norm: 1.0,
            learning_rate: 1e-3,
            metrics: Default::default(),
        }
    }

    fn pace(time: f64, step: usize) -> Event {
        Event::Pace {
            time,
            step,
            tokens_per_second: 10.0,
            utilization: None,
            memory_mib: None,
            device_in_use: None,
            device_reserved: None,
            seconds_left: 0.0,
        }
    }

    fn begun(time: f64, step: usize) -> Event {
        Event::Begun {
            time,
            step,
            steps: 4,
            backend: "flex".into(),
            version: "1".into(),
            floor: (step == 0).then_some(0.5),
            uniform_loss: None,
            metrics: Vec::new(),
        }
    }

    fn evaluation(step: usize, loss: f64) -> Event {
        Event::Evaluation {
            step,
            loss,
            perplexity: Some(loss.exp()),
            tokens: 10,
            datasets: Vec::new(),
            metrics: Default::default(),
        }
    }

    #[test]
    fn a_resumed_run_has_one_history() {
        let history = History::of([
            begun(1000.0, 0),
            step(1, 4.0),
            pace(1010.0, 1),
            evaluation(2, 3.5),
            step(2, 3.0),
            pace(1020.0, 2),
            // The run was killed later and resumed from the checkpoint at step 2, without the lines after it.
            begun(9000.0, 2),
            step(3, 2.0),
            pace(9011.0, 3),
            evaluation(4, 1.5),
            step(4, 1.0),
            Event::Ended {
                time: 9020.0,
                step: 4,
                how: Ending::Finished,
            },
        ]);
        let steps: Vec<usize> = history.steps.iter().map(|point| point.step).collect();
        assert_eq!(steps, [1, 2, 3, 4]);
        assert_eq!(history.seconds_at(3), Some(31.0));
        assert_eq!(history.tokens_at(4), Some(400.0));
        assert_eq!(history.floor, Some(0.5));
        let expected = EvaluationPoint { step: 4, loss: 1.5 };
        assert_eq!(history.best(), Some(expected));
        assert_eq!(history.ended, Some(Ending::Finished));
        let again = History::of([begun(1.0, 0), evaluation(1, f64::NAN)]);
        assert_eq!((again.best(), again.ended), (None, None));
    }

    #[test]
    fn values_are_interpolated_between_steps() {
        let known = [(10, 1.0), (20, 3.0)];
        let found = [5, 10, 15, 20, 30].map(|step| at(&known, |point| *point, step));
        assert_eq!(found, [0.5, 1.0, 2.0, 3.0, 3.0].map(Some));
        assert_eq!(at(&[], |point| *point, 3), None);
    }

    #[test]
    fn a_locked_run_is_running() {
        let run = tempfile::tempdir().expect("a folder");
        let history = History::default();
        assert_eq!(history.status(run.path()), Status::Interrupted);
        let lock = File::create(run.path().join(LOCK_FILE)).expect("a file");
        assert_eq!(history.status(run.path()), Status::Interrupted);
        lock.lock().expect("a lock");
        assert_eq!(history.status(run.path()), Status::Running);
        lock.unlock().expect("unlocked");
        assert_eq!(history.status(run.path()), Status::Interrupted);
    }
}
