//! The dashboard of a run in a terminal: figures, curves and progress, drawn by a dedicated thread when something
//! changes.
//!
//! Modules: `screen` draws the layout, `plot` the curves, `quit` the dialog that asks how to end the run, and `charset` replaces characters
//! that the terminal lacks.

#![expect(
    clippy::disallowed_methods,
    reason = "the dashboard owns the terminal while it is shown"
)]

mod charset;
mod plot;
mod quit;
mod screen;
#[cfg(test)]
mod tests;

use std::io::stdout;
use std::panic;
use std::path::PathBuf;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use crate::report::metrics::{Figures, Metric, Phase, ProgressDisplay, ShownMetrics};
use crate::stop::StopSignal;
use charset::Charset;
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

/// The display of a run in a terminal.
pub(crate) struct Dashboard {
    training: ShownMetrics,
    validation: ShownMetrics,
    updates: Sender<Update>,
    thread: Option<JoinHandle<()>>,
}

/// A message to the drawing thread.
enum Update {
    /// The figures of a step or of an evaluation.
    Step {
        step: usize,
        validation: bool,
        /// The state of the run as text, which an evaluation leaves as it is.
        summary: Option<String>,
        /// The values by tab.
        points: Vec<(String, f64)>,
    },
    Close,
}

impl Dashboard {
    /// Takes over the terminal. [`Drop`] restores it; [`restore_terminal`] does so for a program that ends in another
    /// way. `added` are the metrics that are not built in.
    pub(crate) fn start(run: DashboardRun, added: &[Metric]) -> std::io::Result<Self> {
        restore_before_panics();
        enable_raw_mode()?;
        TAKEN.store(true, Ordering::SeqCst);
        execute!(stdout(), EnterAlternateScreen)?;
        let terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        let (updates, receiver) = channel();
        let painter = Painter {
            screen: Screen {
                charset: Charset::of_environment(),
                ..Screen::of(&run)
            },
            run,
            updates: receiver,
            started: Instant::now(),
        };
        let mut dashboard = Self::new(updates, added);
        dashboard.thread = Some(
            thread::Builder::new()
                .name("dashboard".to_owned())
                .spawn(move || painter.run(terminal))?,
        );
        Ok(dashboard)
    }

    /// A dashboard without a thread that draws.
    fn new(updates: Sender<Update>, added: &[Metric]) -> Self {
        Self {
            training: ShownMetrics::new(added, Phase::Training),
            validation: ShownMetrics::new(added, Phase::Validation),
            updates,
            thread: None,
        }
    }

    fn send(&self, update: Update) {
        // The thread ends when the terminal is closed.
        let _ = self.updates.send(update);
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

impl ProgressDisplay for Dashboard {
    fn show_step(&mut self, step: usize, figures: &Figures) {
        self.training.update(&figures.readings);
        self.send(Update::Step {
            step,
            validation: false,
            summary: Some(figures.summary()),
            points: self.training.points(),
        });
    }

    fn show_evaluation(&mut self, step: usize, figures: &Figures) {
        self.validation.update(&figures.readings);
        self.send(Update::Step {
            step,
            validation: true,
            summary: None,
            points: self.validation.points(),
        });
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
    started: Instant,
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
            let seconds = self.started.elapsed().as_secs();
            if seconds != self.screen.seconds {
                changed = true;
                self.screen.seconds = seconds;
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
        let Update::Step {
            step,
            validation,
            summary,
            points,
        } = update
        else {
            return;
        };
        self.screen.step = self.screen.step.max(step);
        if let Some(summary) = summary {
            self.screen.now = summary;
        }
        for (tab, number) in points {
            let curves = self.screen.plots.of(&tab);
            let points = match validation {
                true => &mut curves.valid,
                false => &mut curves.train,
            };
            points.push((step as f64, number));
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
