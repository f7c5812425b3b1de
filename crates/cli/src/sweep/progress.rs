//! How the runs of a sweep go, on stderr: a bar each in a terminal, a line for each beginning and end elsewhere.

use std::collections::HashMap;
use std::fs::File;
use std::io::{IsTerminal, Read, Seek, SeekFrom, stderr};
use std::time::Instant;

use emberlm_trainer::events::{EVENTS_FILE, Event};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::children::Ended;
use super::plan::Planned;
use crate::plot::middle_cut;

/// The runs in progress, as they are shown.
pub struct Progress {
    bars: Option<MultiProgress>,
    /// Runs in all, and those that have ended.
    runs: usize,
    done: usize,
    shown: HashMap<String, Shown>,
}

struct Shown {
    bar: ProgressBar,
    started: Instant,
    events: Tail,
    loss: Option<f64>,
    validation: Option<f64>,
    step: usize,
}

/// Of a name in front of a bar.
const NAME: usize = 36;

impl Progress {
    /// Nothing in progress, of so many runs of which some are done.
    pub fn new(runs: usize, done: usize) -> Self {
        Self {
            bars: stderr().is_terminal().then(MultiProgress::new),
            runs,
            done,
            shown: HashMap::new(),
        }
    }

    /// A run was started.
    pub fn started(&mut self, run: &Planned) {
        let steps = run.config.train.steps;
        let bar = match &self.bars {
            Some(bars) => bars.add(ProgressBar::new(steps as u64)),
            None => {
                eprintln!("{}: started", run.name);
                ProgressBar::hidden()
            }
        };
        if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:20} {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(middle_cut(&run.name, NAME));
        let shown = Shown {
            bar,
            started: Instant::now(),
            events: Tail::default(),
            loss: None,
            validation: None,
            step: 0,
        };
        self.shown.insert(run.name.clone(), shown);
    }

    /// Looks what a run has done since.
    pub fn look(&mut self, run: &Planned) {
        if let Some(shown) = self.shown.get_mut(&run.name) {
            shown.look(run);
        }
    }

    /// A run has ended.
    pub fn ended(&mut self, run: &Planned, how: &Ended) {
        let Some(shown) = self.shown.remove(&run.name) else {
            return;
        };
        let how = match how {
            Ended::Finished => "finished",
            Ended::Stopped => "stopped",
            Ended::Failed(_) => "failed",
        };
        self.done += 1;
        let steps = run.config.train.steps;
        let line = format!(
            "{}: {how}, {:.0} s, step {}/{steps} {} [{}/{}]",
            run.name,
            shown.started.elapsed().as_secs_f64(),
            shown.step,
            shown.losses(),
            self.done,
            self.runs
        );
        shown.bar.finish_and_clear();
        match &self.bars {
            // A terminal that is gone cannot be written to.
            Some(bars) => drop(bars.println(line)),
            None => eprintln!("{line}"),
        }
    }
}

impl Shown {
    fn look(&mut self, run: &Planned) {
        for event in self.events.read(run) {
            self.step = self.step.max(event.step());
            match event {
                Event::Step { loss, .. } => self.loss = Some(loss),
                Event::Evaluation { loss, .. } => self.validation = Some(loss),
                _ => {}
            }
        }
        self.bar.set_position(self.step as u64);
        self.bar.set_message(self.losses());
    }

    fn losses(&self) -> String {
        let loss = self.loss.map(|loss| format!("loss {loss:.4}"));
        let validation = self.validation.map(|loss| format!("validation {loss:.4}"));
        let known: Vec<String> = loss.into_iter().chain(validation).collect();
        known.join(", ")
    }
}

/// Reads a growing file of events.
#[derive(Default)]
struct Tail {
    read: u64,
    /// The beginning of a line whose end is not there yet.
    rest: Vec<u8>,
}

impl Tail {
    /// The events since the last time; what is no event is left out.
    fn read(&mut self, run: &Planned) -> Vec<Event> {
        let mut new = Vec::new();
        let opened = File::open(run.folder.join(EVENTS_FILE));
        let Ok(mut file) = opened else {
            return Vec::new();
        };
        // A resumed run cuts off what it will do again.
        if file.metadata().is_ok_and(|found| found.len() < self.read) {
            *self = Self::default();
        }
        let sought = file.seek(SeekFrom::Start(self.read));
        if sought.and_then(|_| file.read_to_end(&mut new)).is_err() {
            return Vec::new();
        }
        self.read += new.len() as u64;
        self.rest.append(&mut new);
        let whole = self.rest.iter().rposition(|&byte| byte == b'\n');
        let lines: Vec<u8> = self.rest.drain(..whole.map_or(0, |end| end + 1)).collect();
        let lines = lines.split(|&byte| byte == b'\n');
        lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    }
}
