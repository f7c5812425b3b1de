//! The dialog that asks how to end a run.

use ratatui::Frame;
use ratatui::layout::Constraint;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

/// A choice of the dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Stop after the current micro-batch and write a checkpoint of the last complete step.
    Save,
    /// Stop after the current micro-batch without writing another checkpoint.
    Discard,
    /// Keep training.
    Cancel,
}

impl Choice {
    /// The choice for a key.
    pub(super) fn of(key: char) -> Option<Self> {
        match key {
            's' => Some(Self::Save),
            'k' => Some(Self::Discard),
            'c' => Some(Self::Cancel),
            _ => None,
        }
    }
}

/// The dialog, with the newest checkpoint at the time when it was opened.
#[derive(Debug)]
pub(super) struct QuitDialog {
    /// Step of the newest checkpoint.
    pub(super) saved: Option<usize>,
}

/// Columns and rows of the dialog.
const SIZE: (u16, u16) = (76, 13);

impl QuitDialog {
    /// Draws the dialog in the middle of the screen; `step` is the newest step shown.
    pub(super) fn draw(&self, frame: &mut Frame<'_>, step: usize) {
        let screen = frame.area();
        let area = screen.centered(Constraint::Max(SIZE.0), Constraint::Max(SIZE.1));
        let lost = match self.saved {
            Some(saved) if saved >= step => {
                format!("The checkpoint of step {saved} is kept; later steps are lost.")
            }
            Some(saved) => {
                let lost = step - saved;
                format!("LOSES the {lost} steps after step {saved}, whose checkpoint is kept.")
            }
            None => format!("LOSES all {step} steps: there is no checkpoint yet."),
        };
        let key = |key: &str, title: &str| {
            let bold = Style::default().add_modifier(Modifier::BOLD);
            Line::from(vec![
                Span::styled(format!(" [{key}] "), bold),
                Span::styled(title.to_owned(), bold.fg(Color::Yellow)),
            ])
        };
        let text = |text: &str| Line::from(format!("     {text}"));
        let lines = vec![
            key("s", "Stop and save"),
            text("After this micro-batch; saves a checkpoint of the last step."),
            Line::default(),
            key("k", "Stop without saving"),
            text(&lost),
            Line::default(),
            key("c", "or Esc: keep training"),
            Line::default(),
            text("A stopped run continues with `emberlm train --resume RUN`."),
        ];
        let block = Block::bordered().title("Quit");
        let paragraph = Paragraph::new(lines)
            .wrap(Wrap { trim: false })
            .block(block);
        frame.render_widget(Clear, area);
        frame.render_widget(paragraph, area);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn drawn(dialog: &QuitDialog, step: usize) -> String {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| dialog.draw(frame, step)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn the_quit_dialog_fits_80_by_24() {
        for (saved, lost) in [
            (
                Some(500),
                "LOSES the 37 steps after step 500, whose checkpoint is kept.",
            ),
            (None, "LOSES all 537 steps: there is no checkpoint yet."),
            (
                Some(537),
                "The checkpoint of step 537 is kept; later steps are lost.",
            ),
        ] {
            let text = drawn(&QuitDialog { saved }, 537);
            for part in [
                "[s] Stop and save",
                "After this micro-batch; saves a checkpoint of the last step.",
                "[k] Stop without saving",
                lost,
                "[c] or Esc: keep training",
                "emberlm train --resume RUN",
            ] {
                assert!(text.contains(part), "`{part}` is not in\n{text}");
            }
        }
    }
}
