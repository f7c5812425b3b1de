//! The dashboard's screen: figures, curves, progress.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::widgets::{Block, Gauge, Paragraph, Wrap};

use super::DashboardRun;
use super::charset::Charset;
use super::plot::Plots;
use super::quit::QuitDialog;
use crate::report::metrics::duration;

/// The state of the screen.
#[derive(Debug, Default)]
pub(super) struct Screen {
    pub(super) plots: Plots,
    pub(super) charset: Charset,
    /// The run's directory.
    pub(super) run: String,
    /// Seconds since the dashboard was started.
    pub(super) seconds: u64,
    /// The newest figures as text.
    pub(super) now: String,
    /// The newest step shown, and the total number of steps.
    pub(super) step: usize,
    pub(super) steps: usize,
    /// Steps between evaluations.
    pub(super) interval: usize,
    pub(super) dialog: Option<QuitDialog>,
    /// The run was asked to stop.
    pub(super) stopping: bool,
    /// The step of the newest checkpoint when the run was asked to stop.
    pub(super) saved: Option<usize>,
}

/// The width of the figures in a wide terminal. The plots have the rest.
const MOST_COLUMNS: u16 = 48;
/// The line of keys.
const KEYS: &str = " q quit   ← → metric   ↑ ↓ all or newest steps";

impl Screen {
    /// The initial screen of a run, before any figures.
    pub(super) fn of(run: &DashboardRun) -> Self {
        Self {
            run: run.path.display().to_string(),
            now: run.notes.clone(),
            steps: run.steps,
            interval: run.interval,
            ..Self::default()
        }
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let rows = [
            Constraint::Min(0),
            Constraint::Length(3),
            Constraint::Length(1),
        ];
        let [top, progress, keys] = Layout::vertical(rows).areas(frame.area());
        let figures = (top.width * 38 / 100).min(MOST_COLUMNS);
        let columns = [Constraint::Length(figures), Constraint::Min(0)];
        let [now, plots] = Layout::horizontal(columns).areas(top);
        let figures = Paragraph::new(self.now.as_str())
            .wrap(Wrap { trim: true })
            .block(Block::bordered().title(self.run.as_str()));
        frame.render_widget(figures, now);
        self.plots.draw(frame, plots);
        self.progress(frame, progress);
        let line = match self.stopping {
            true => Paragraph::new(self.stopping_line()).style(Style::default().fg(Color::Yellow)),
            false => Paragraph::new(KEYS).style(Style::default().fg(Color::DarkGray)),
        };
        frame.render_widget(line, keys);
        if let Some(dialog) = &self.dialog {
            dialog.draw(frame, self.step);
        }
        self.charset.apply(frame.buffer_mut());
    }

    /// The line shown after a stop was requested.
    fn stopping_line(&self) -> String {
        let lost = match (self.saved, self.step) {
            (Some(saved), step) if saved >= step => "the last steps".to_owned(),
            (saved, step) => format!("{} steps", step - saved.unwrap_or(0)),
        };
        format!(" Stopping after this micro-batch. Ctrl-C again stops now and loses {lost}.")
    }

    /// The progress and the next evaluation. The time left is among the figures.
    fn progress(&self, frame: &mut Frame<'_>, area: Rect) {
        let ratio = self.step as f64 / self.steps.max(1) as f64;
        let mut title = format!("Step {} of {}", self.step, self.steps);
        let until = self.interval - self.step % self.interval.max(1);
        if self.interval > 0 && self.step < self.steps {
            let until = until.min(self.steps - self.step);
            title += &format!(", evaluation in {until}");
        }
        title += &format!(", {} elapsed", duration(self.seconds as f64));
        // A label within the bar would rely on colours to be readable.
        let gauge = Gauge::default()
            .block(Block::bordered().title(title))
            .gauge_style(Style::default().fg(Color::Yellow))
            .ratio(ratio.clamp(0.0, 1.0))
            .label("");
        frame.render_widget(gauge, area);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn drawn(screen: &Screen) -> String {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn the_screen_has_one_countdown_and_no_epoch() {
        let mut screen = Screen {
            now: "loss 1.5000  ppl 4.48  3\u{a0}min\u{a0}20\u{a0}s\u{a0}left".to_owned(),
            step: 130,
            steps: 1000,
            interval: 100,
            seconds: 65,
            ..Screen::default()
        };
        screen
            .plots
            .of("Loss")
            .train
            .extend([(1.0, 4.0), (130.0, 1.5)]);
        let text = drawn(&screen);
        assert_eq!(text.matches("left").count(), 1, "{text}");
        assert!(
            text.contains("┌Step 130 of 1000, evaluation in 70, 1 min 05 s elapsed─"),
            "{text}"
        );
        assert!(!text.to_lowercase().contains("epoch"), "{text}");
        let bar = format!("│{}{}│", "█".repeat(10), " ".repeat(68));
        assert!(text.contains(&bar), "13% of 78 columns: {text}");
        assert!(text.contains("4.00") && text.contains("q quit"), "{text}");
        screen.step = 1000;
        let text = drawn(&screen);
        assert!(
            text.contains("┌Step 1000 of 1000, 1 min 05 s elapsed─"),
            "{text}"
        );
        assert!(!text.contains("evaluation in"), "{text}");
        screen.stopping = true;
        let expected =
            "Stopping after this micro-batch. Ctrl-C again stops now and loses 1000 steps.";
        assert!(drawn(&screen).contains(expected));
        screen.saved = Some(990);
        assert!(drawn(&screen).contains("loses 10 steps."));
    }

    #[test]
    fn a_wide_terminal_shows_several_metrics() {
        let mut screen = Screen::default();
        for (at, name) in ["Loss", "Perplexity", "Rate"].into_iter().enumerate() {
            let low = 10.0 * (at + 1) as f64;
            let curves = screen.plots.of(name);
            curves.train.extend([(1.0, low), (9.0, low + 5.0)]);
        }
        let drawn = |screen: &Screen, columns, rows| {
            let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
            terminal.draw(|frame| screen.draw(frame)).unwrap();
            terminal.backend().to_string()
        };
        let lows = |text: &str| ["10.00", "20.00", "30.00"].map(|low| text.contains(low));
        assert_eq!(lows(&drawn(&screen, 80, 24)), [true, false, false]);
        assert_eq!(lows(&drawn(&screen, 180, 24)), [true, true, false]);
        assert_eq!(lows(&drawn(&screen, 180, 50)), [true; 3]);
        screen.plots.turn(true);
        assert_eq!(lows(&drawn(&screen, 180, 24)), [false, true, true]);
    }

    #[test]
    fn an_ascii_screen_has_no_other_character() {
        let mut screen = Screen {
            charset: Charset::Ascii,
            now: "loss 1.5000  “größer”".to_owned(),
            step: 50,
            steps: 100,
            ..Screen::default()
        };
        let curves = screen.plots.of("Loss");
        curves.train.extend([(1.0, 4.0), (50.0, 1.5)]);
        let text = drawn(&screen);
        assert!(text.is_ascii(), "{text}");
        assert!(text.contains(&"#".repeat(39)), "{text}");
        assert!(text.contains("\"gr??er\""), "{text}");
    }

    #[test]
    fn the_screen_draws_at_any_size() {
        let screen = Screen::default();
        for (columns, rows) in [(1, 1), (20, 5), (200, 60)] {
            let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
            terminal.draw(|frame| screen.draw(frame)).unwrap();
        }
    }
}
