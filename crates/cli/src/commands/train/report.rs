//! Output at the end of a run.

use emberlm_checkpoint::{ModelKind, kind_of};
use emberlm_trainer::checkpoint::{Best, State};
use emberlm_trainer::events;
use emberlm_trainer::{Divergence, ObjectiveConfig, RunResult};

use crate::console;
use crate::error::{CliError, warn};
use crate::output::print;
use crate::shell::shell_path;

/// Prints the result of a run with an objective, and the suggested next commands.
pub fn report(result: &RunResult, objective: &ObjectiveConfig) -> Result<(), CliError> {
    let classifies = matches!(objective, ObjectiveConfig::Classify(_));
    let mut text = String::new();
    let run = shell_path(&result.run);
    let state = &result.state;
    if result.interrupted {
        console::note(format_args!("Stopped after step {}.", state.step));
    }
    if result.stopped_early {
        console::note(stopped_early(state));
    }
    if state.watch.total() > 0 {
        console::note(format_args!("{} steps were skipped.", state.watch.total()));
    }
    if let Some(loss) = state.validation_loss {
        text += &match objective.loss_unit() {
            _ if objective.samples() => format!("Reward           {:.4}\n", -loss),
            Some(unit) => format!("Validation loss  {loss:.4} {unit}\n"),
            None => format!("Validation loss  {loss:.4}\n"),
        };
        if let Some(floor) = &result.floor {
            let (nats, source) = (floor.nats_per_token, &floor.source);
            text += &format!("Floor            {nats:.4} nats per token: {source}\n");
        }
    }
    if let Some(sample) = &result.sample {
        text += &format!("Sample\n{}\n", indented(sample));
    }
    text += &format!("Run              {}\n", result.run.display());
    if result.checkpoint.is_some() {
        let program = program();
        text += &match kind_of(&result.run) {
            ModelKind::Decoder if result.chats => {
                format!("To chat          {program} chat {run}\n")
            }
            ModelKind::Decoder => format!("To generate      {program} generate {run}\n"),
            ModelKind::Encoder if classifies => {
                format!("To classify      {program} classify {run} FILE\n")
            }
            ModelKind::Encoder => format!("To embed texts   {program} embed {run} FILE\n"),
            ModelKind::EncoderDecoder => {
                format!("To generate      {program} generate {run} --prompt TEXT\n")
            }
        };
        if result.interrupted {
            text += &format!("To resume        {program} train --resume {run}\n");
        }
    }
    print(&text)?;
    check_divergence(result)
}

/// States that a run ended early, with the evaluation that was not improved upon.
fn stopped_early(state: &State) -> String {
    let (step, evaluations) = (state.step, state.evaluations_since_best);
    let best = state.best.map(|best| {
        let Best { loss, step } = best;
        format!(": none of the last {evaluations} evaluations was below {loss:.4}, the validation loss of step {step}")
    });
    format!(
        "Stopped early after step {step}{}.",
        best.unwrap_or_default()
    )
}

/// Warns if the run seems to have diverged, and returns an error if its model is useless. An interrupted run
/// may still recover, so it only gets a warning.
fn check_divergence(result: &RunResult) -> Result<(), CliError> {
    const HINT: &str =
        "lower the learning rate, for example --set train.schedule.learning_rate=1e-4";
    // Without a readable log, only the checkpoint's state is used.
    let events = events::read(&result.run).unwrap_or_default().events;
    match Divergence::of(&result.state, &events) {
        Some(sign) if sign.is_failure() && !result.interrupted => {
            Err(CliError::new(sign.to_string()).hint(HINT))
        }
        Some(sign) => {
            warn(&sign.to_string());
            console::note(format_args!("hint: {HINT}"));
            Ok(())
        }
        None => Ok(()),
    }
}

/// Line width of the sample text, which is only read and not copied.
const COLUMNS: usize = 78;

/// Indents the text and breaks long lines between words.
fn indented(text: &str) -> String {
    let mut out = String::new();
    for line in text.trim().lines().filter(|line| !line.is_empty()) {
        let mut column = COLUMNS;
        for word in line.split(' ') {
            let width = word.chars().count() + 1;
            if column + width > COLUMNS {
                out += if out.is_empty() { " " } else { "\n " };
                column = 0;
            }
            out.push(' ');
            out += word;
            column += width;
        }
    }
    out
}

/// The command that starts this program: through Cargo if the binary is in a `target` folder.
fn program() -> &'static str {
    let built_here = std::env::current_exe().is_ok_and(|exe| {
        let mut folders = exe.components().rev().skip(1);
        folders.any(|folder| folder.as_os_str() == "target")
    });
    if built_here {
        "cargo run --release --"
    } else {
        "emberlm"
    }
}

#[cfg(test)]
mod tests {
    use super::indented;

    #[test]
    fn samples_are_wrapped_between_words() {
        assert_eq!(indented("one two\n\nthree\n"), "  one two\n  three");
        let text = indented(&"word ".repeat(40));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(
            lines
                .iter()
                .all(|line| line.starts_with("  word") && line.len() <= 80)
        );
    }
}
