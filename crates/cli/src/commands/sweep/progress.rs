//! Progress of a sweep on stderr: one bar per run on a terminal, otherwise a line per start and end.

use std::collections::HashMap;
use std::time::Instant;

use emberlm_serve::tail::{self, FilePosition};
use emberlm_system::text::escaped;
use emberlm_trainer::events::{EVENTS_FILE, Event};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::children::RunOutcome;
use super::plan::PlannedRun;
use super::stopping::EarlyStop;
use crate::console;
use crate::plot::middle_cut;

/// The displayed state of the running processes.
pub struct Progress {
    bars: Option<MultiProgress>,
    /// The total number of runs, and the number that have ended.
    runs: usize,
    done: usize,
    shown: HashMap<String, Shown>,
}

struct Shown {
    bar: ProgressBar,
    started: Instant,
    /// Position up to which the events were read.
    place: FilePosition,
    loss: Option<f64>,
    validation: Option<f64>,
    step: usize,
}

/// Maximum length of a name in front of a bar.
const NAME: usize = 36;

impl Progress {
    /// Creates a display for `runs` runs, of which `done` have ended.
    pub fn new(runs: usize, done: usize) -> Self {
        Self {
            bars: console::stderr_is_terminal().then(MultiProgress::new),
            runs,
            done,
            shown: HashMap::new(),
        }
    }

    /// Adds a run that was started.
    pub fn started(&mut self, run: &PlannedRun) {
        let steps = run.config.train.steps;
        let bar = match &self.bars {
            Some(bars) => bars.add(ProgressBar::new(steps as u64)),
            None => {
                console::note(format_args!("{}: started", run.name));
                ProgressBar::hidden()
            }
        };
        if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:20} {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(middle_cut(&escaped(&run.name), NAME));
        let shown = Shown {
            bar,
            started: Instant::now(),
            place: FilePosition::default(),
            loss: None,
            validation: None,
            step: 0,
        };
        self.shown.insert(run.name.clone(), shown);
    }

    /// Reads a run's new events. Returns true if they include an evaluation.
    pub fn look(&mut self, run: &PlannedRun) -> bool {
        let shown = self.shown.get_mut(&run.name);
        shown.is_some_and(|shown| shown.look(run))
    }

    /// Removes a run that has ended.
    pub fn ended(&mut self, run: &PlannedRun, outcome: &RunOutcome) {
        let Some(shown) = self.shown.remove(&run.name) else {
            return;
        };
        let outcome = match outcome {
            RunOutcome::Finished => "finished".to_owned(),
            RunOutcome::Stopped => "stopped".to_owned(),
            RunOutcome::StoppedEarly(EarlyStop { loss, limit, .. }) => {
                format!("stopped early (validation loss {loss:.4} > {limit:.4})")
            }
            RunOutcome::Failed(_) => "failed".to_owned(),
        };
        self.done += 1;
        let steps = run.config.train.steps;
        let line = format!(
            "{}: {outcome}, {:.0} s, step {}/{steps} {} [{}/{}]",
            run.name,
            shown.started.elapsed().as_secs_f64(),
            shown.step,
            shown.losses(),
            self.done,
            self.runs
        );
        shown.bar.finish_and_clear();
        match &self.bars {
            // Printing fails only if the terminal is gone.
            Some(bars) => drop(bars.println(escaped(&line))),
            None => console::note(line),
        }
    }
}

impl Shown {
    fn look(&mut self, run: &PlannedRun) -> bool {
        let path = run.folder.join(EVENTS_FILE);
        // The file may not exist yet or be temporarily unreadable. The next poll reads it again.
        let Ok(tail) = tail::read_after(&path, &self.place) else {
            return false;
        };
        self.place = tail.place;
        let mut evaluated = false;
        let events = tail.lines.into_iter();
        for event in events.filter_map(|line| serde_json::from_value::<Event>(line).ok()) {
            self.step = self.step.max(event.step());
            match event {
                Event::Step { loss, .. } => self.loss = Some(loss),
                Event::Evaluation { loss, .. } => {
                    self.validation = Some(loss);
                    evaluated = true;
                }
                _ => {}
            }
        }
        self.bar.set_position(self.step as u64);
        self.bar.set_message(self.losses());
        evaluated
    }

    fn losses(&self) -> String {
        let loss = self.loss.map(|loss| format!("loss {loss:.4}"));
        let validation = self.validation.map(|loss| format!("validation {loss:.4}"));
        let known: Vec<String> = loss.into_iter().chain(validation).collect();
        known.join(", ")
    }
}
