//! The dashboard of a run in a terminal: figures, curves and progress, drawn by a dedicated thread when something
//! changes.
//!
//! Modules: `screen` draws the layout, `plot` the curves, and `quit` the dialog that asks how to end the run.

#![expect(
    clippy::disallowed_methods,
    reason = "the dashboard owns the terminal while it is shown"
)]

mod plot;
mod quit;
mod screen;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::stdout;
use std::panic;
use std::path::PathBuf;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use burn::train::metric::{MetricDefinition, MetricId};
use burn::train::renderer::{
    EvaluationName, EvaluationProgress, MetricState, MetricsRenderer, MetricsRendererEvaluation,
    MetricsRendererTraining, ProgressType, TrainingProgress,
};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use crate::metrics::renderers::NOW;
use crate::stop::StopSignal;
use quit::{Choice, QuitDialog};
use screen::Screen;

/// The interval at which keys and figures are polled.
const TICK: Duration = Duration::from_millis(100);

/// A run as the dashboard shows it.
pub(crate) struct DashboardRun {
    /// The run's directory.
    pub(crate) path: PathBuf,
    /// Notes about the run, shown until the first figures arrive.
    pub(crate) notes: String,
    /// Total number of steps.
    pub(crate) steps: usize,
    /// Steps between evaluations.
    pub(crate) interval: usize,
    /// Stops the run.
    pub(crate) stop: StopSignal,
}

/// Burn's renderer for a terminal.
pub(crate) struct Dashboard {
    names: HashMap<MetricId, String>,
    updates: Sender<Update>,
    thread: Option<JoinHandle<()>>,
}

/// A message to the drawing thread.
enum Update {
    /// The newest value of a metric, as text and as a number.
    Value {
        name: String,
        text: String,
        number: Option<f64>,
        validation: bool,
    },
    /// The values of a step are complete.
    Step {
        step: usize,
        validation: bool,
    },
    Close,
}

impl Dashboard {
    /// Takes over the terminal. [`Drop`] restores it; [`restore_terminal`] does so for a program that ends in another
    /// way.
    pub(crate) fn start(run: DashboardRun) -> std::io::Result<Self> {
        restore_before_panics();
        enable_raw_mode()?;
        TAKEN.store(true, Ordering::SeqCst);
        execute!(stdout(), EnterAlternateScreen)?;
        let terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        let (updates, receiver) = channel();
        let painter = Painter {
            screen: Screen::of(&run),
            run,
            updates: receiver,
            newest: HashMap::new(),
        };
        let thread = thread::Builder::new()
            .name("dashboard".to_owned())
            .spawn(move || painter.run(terminal))?;
        Ok(Self {
            names: HashMap::new(),
            updates,
            thread: Some(thread),
        })
    }

    fn send(&self, update: Update) {
        // The thread ends when the terminal is closed.
        let _ = self.updates.send(update);
    }

    fn value(&self, state: MetricState, validation: bool) {
        let numeric = matches!(state, MetricState::Numeric(..));
        let (MetricState::Generic(entry) | MetricState::Numeric(entry, _)) = state;
        let Some(name) = self.names.get(&entry.metric_id) else {
            return;
        };
        let number = entry.serialized_entry.serialized.parse().ok();
        self.send(Update::Value {
            name: name.clone(),
            text: entry.serialized_entry.formatted,
            number: number.filter(|_| numeric),
            validation,
        });
    }

    fn step(&self, progress: &TrainingProgress, validation: bool) {
        let step = progress.iteration.unwrap_or(0);
        self.send(Update::Step { step, validation });
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.send(Update::Close);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        restore_terminal();
    }
}

impl MetricsRendererTraining for Dashboard {
    fn update_train(&mut self, state: MetricState) {
        self.value(state, false);
    }

    fn update_valid(&mut self, state: MetricState) {
        self.value(state, true);
    }

    fn render_train(&mut self, progress: TrainingProgress, _indicators: Vec<ProgressType>) {
        self.step(&progress, false);
    }

    fn render_valid(&mut self, progress: TrainingProgress, _indicators: Vec<ProgressType>) {
        self.step(&progress, true);
    }
}

impl MetricsRendererEvaluation for Dashboard {
    fn update_test(&mut self, _name: EvaluationName, _state: MetricState) {}

    fn render_test(&mut self, _progress: EvaluationProgress, _indicators: Vec<ProgressType>) {}
}

impl MetricsRenderer for Dashboard {
    fn manual_close(&mut self) {}

    fn register_metric(&mut self, definition: MetricDefinition) {
        self.names.insert(definition.metric_id, definition.name);
    }
}

/// True while a dashboard uses the terminal.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Restores the terminal to its state before the dashboard. Does nothing without a dashboard.
pub fn restore_terminal() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // The terminal may be closed.
        let _ = disable_raw_mode();
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    }
}

/// Restores the terminal before a panic's message is printed.
fn restore_before_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore_terminal();
            before(info);
        }));
    });
}

/// The input from the terminal within a [`TICK`].
enum Input {
    Event(Event),
    Nothing,
    /// The terminal was closed.
    Closed,
}

/// Waits for a key. Crossterm reads from a closed terminal forever, so it is called only when input is available.
#[cfg(unix)]
fn wait_for_input() -> Input {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;
    let stdout = stdout();
    let mut terminal = [PollFd::new(&stdout, PollFlags::IN)];
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: TICK.subsec_nanos().into(),
    };
    match poll(&mut terminal, Some(&tick)) {
        Ok(0) | Err(Errno::INTR) => return Input::Nothing,
        Ok(_) => {}
        Err(_) => return Input::Closed,
    }
    let closed = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    match terminal[0].revents().intersects(closed) {
        true => Input::Closed,
        false => read_event(Duration::ZERO),
    }
}

#[cfg(not(unix))]
fn wait_for_input() -> Input {
    read_event(TICK)
}

fn read_event(timeout: Duration) -> Input {
    match event::poll(timeout) {
        Ok(true) => event::read().map_or(Input::Closed, Input::Event),
        Ok(false) => Input::Nothing,
        Err(_) => Input::Closed,
    }
}

/// The thread that draws and reads keys.
struct Painter {
    run: DashboardRun,
    screen: Screen,
    updates: Receiver<Update>,
    /// The newest numbers by metric and phase (true for evaluation), until their step is complete.
    newest: HashMap<(String, bool), f64>,
}

impl Painter {
    fn run(mut self, mut terminal: Terminal<CrosstermBackend<std::io::Stdout>>) {
        let mut changed = true;
        loop {
            loop {
                match self.updates.try_recv() {
                    Ok(Update::Close) | Err(TryRecvError::Disconnected) => return,
                    Ok(update) => self.take(update),
                    Err(TryRecvError::Empty) => break,
                }
                changed = true;
            }
            let stopping = self.run.stop.is_requested();
            if stopping != self.screen.stopping {
                changed = true;
                self.screen.stopping = stopping;
                self.screen.saved = self.saved();
            }
            // Another thread that ends the program may have restored the terminal.
            if changed && TAKEN.load(Ordering::SeqCst) {
                // Drawing on a closed terminal fails.
                let _ = terminal.draw(|frame| self.screen.draw(frame));
                changed = false;
            }
            match wait_for_input() {
                Input::Event(event) => {
                    self.on(&event);
                    changed = true;
                }
                Input::Nothing => {}
                Input::Closed => return,
            }
        }
    }

    /// The step of the newest checkpoint.
    fn saved(&self) -> Option<usize> {
        let saved = emberlm_checkpoint::checkpoint::newest_step(&self.run.path);
        saved.ok().flatten()
    }

    fn take(&mut self, update: Update) {
        match update {
            Update::Value {
                name,
                text,
                number,
                validation,
            } => match number {
                Some(number) => {
                    // In the order of the metrics, regardless of which was evaluated first.
                    self.screen.plots.of(&name);
                    self.newest.insert((name, validation), number);
                }
                None if name == NOW => self.screen.now = text,
                None => {}
            },
            Update::Step { step, validation } => {
                self.screen.step = self.screen.step.max(step);
                let newest = std::mem::take(&mut self.newest);
                for ((name, of_validation), number) in newest {
                    if of_validation != validation {
                        self.newest.insert((name, of_validation), number);
                        continue;
                    }
                    let curves = self.screen.plots.of(&name);
                    let points = match validation {
                        true => &mut curves.valid,
                        false => &mut curves.train,
                    };
                    points.push((step as f64, number));
                }
            }
            Update::Close => {}
        }
    }

    fn on(&mut self, event: &Event) {
        let Event::Key(key) = event else {
            return;
        };
        if key.kind == KeyEventKind::Release {
            return;
        }
        if is_interrupt(*key) {
            return interrupt(&self.run.stop);
        }
        match (&self.screen.dialog, key.code) {
            (Some(_), KeyCode::Esc) => self.screen.dialog = None,
            (Some(_), KeyCode::Char(key)) => {
                match Choice::of(key) {
                    Some(Choice::Save) => self.run.stop.save(),
                    Some(Choice::Discard) => self.run.stop.discard(),
                    Some(Choice::Cancel) => {}
                    None => return,
                }
                self.screen.dialog = None;
            }
            (None, KeyCode::Char('q')) if !self.screen.stopping => {
                let saved = self.saved();
                self.screen.dialog = Some(QuitDialog { saved });
            }
            (None, KeyCode::Left) => self.screen.plots.turn(false),
            (None, KeyCode::Right) => self.screen.plots.turn(true),
            (None, KeyCode::Up | KeyCode::Down) => self.screen.plots.change_range(),
            _ => {}
        }
    }
}

/// Returns true for Ctrl-C, which is a key in raw mode.
fn is_interrupt(key: KeyEvent) -> bool {
    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}

/// Sends the signal that Ctrl-C sends without raw mode. The program may handle or ignore it.
#[cfg(unix)]
fn interrupt(_stop: &StopSignal) {
    use rustix::process::{Signal, getpid, kill_process};
    let _ = kill_process(getpid(), Signal::INT);
}

#[cfg(not(unix))]
fn interrupt(stop: &StopSignal) {
    stop.save();
}
