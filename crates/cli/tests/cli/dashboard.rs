//! The dashboard in a pseudo-terminal.

use emberlm_checkpoint::checkpoint::newest_step;

use super::support::terminal::Terminal;
use super::support::train::TINY;
use super::support::{AssertText, Sandbox};

/// Without checkpoints while a test looks at the dashboard, however long that takes.
const UNSAVED: &str =
    "--set train.checkpoints.at_evaluations=false --set train.checkpoints.minutes=0";

fn line(more: &str) -> String {
    let tiny = TINY.replace("--renderer plain", "");
    format!("train {tiny} --data data --out run --steps 100000 --eval-interval 40 {more}")
}

#[test]
fn the_dashboard_fits_80_by_24_and_survives_resizing() {
    let sandbox = Sandbox::with_data();
    let mut terminal = Terminal::start(&sandbox, &line(""), 24, 80);
    let text = terminal.wait_for("a sample", |text| text.contains('“'));
    for part in [
        "loss ", "valid ", "ppl ", "|g| ", "rate ", "tok/s", "MiB", " left", "Plots", "┌Step ",
    ] {
        text.assert_has(part);
    }
    text.assert_has("Loss │ Perplexity │ Rate │ Gradient │ Tokens/s");
    for (rows, cols) in [(40, 120), (5, 20), (24, 80)] {
        terminal.resize(rows, cols, '┌');
    }
    terminal.wait_for("the old size", |text| {
        text.contains("Loss │ Perplexity │ Rate │ Gradient │ Tokens/s") && text.contains("loss ")
    });
    // Ctrl-C saves a checkpoint and restores the terminal.
    terminal.press("\u{3}");
    let (success, text) = terminal.ended();
    assert!(success, "{text}");
    text.assert_has("Stopped after step ");
    text.assert_has("--resume run");
    assert_eq!(sandbox.events("run", "ended")[0]["how"], "interrupted");
}

#[test]
fn the_run_and_its_best_loss_are_named_in_any_locale() {
    let sandbox = Sandbox::with_data();
    let ascii = [("LC_ALL", "C")];
    let mut terminal = Terminal::start_with(&sandbox, &line(UNSAVED), &ascii, 50, 180);
    let text = terminal.wait_for("an evaluation", |text| text.contains("best "));
    for part in ["+run-", " elapsed", "Perplexity", "< > metric"] {
        text.assert_has(part);
    }
    assert!(text.is_ascii(), "{text}");
    terminal.press("\u{3}");
    assert!(terminal.ended().0);
}

#[test]
fn a_terminal_that_cannot_move_the_cursor_has_no_dashboard() {
    let sandbox = Sandbox::with_data();
    let dumb = [("TERM", "dumb")];
    let line = line("").replace("--steps 100000", "--steps 2");
    let (success, text) = Terminal::start_with(&sandbox, &line, &dumb, 24, 120).ended();
    assert!(success, "{text}");
    text.assert_has("step 2/2  loss ");
    let line = format!("{line} --renderer dashboard");
    let (success, text) = Terminal::start_with(&sandbox, &line, &dumb, 24, 120).ended();
    assert!(!success, "{text}");
    text.assert_has(
        "--renderer dashboard needs a terminal that can move its cursor (TERM is dumb)",
    );
}

#[test]
fn the_quit_dialog_stops_with_or_without_saving() {
    for (key, success, expected) in [
        ("s", true, "Stopped after step "),
        ("k", false, "without saving; it has no checkpoint"),
    ] {
        let sandbox = Sandbox::with_data();
        let mut terminal = Terminal::start(&sandbox, &line(UNSAVED), 24, 80);
        terminal.wait_for("the dashboard", |text| text.contains("tok/s"));
        terminal.press("q");
        let parts = [
            "[s] Stop and save",
            "[k] Stop without saving",
            "LOSES all ",
            "[c] or Esc: keep training",
            "--resume RUN",
        ];
        // A frame may arrive in several parts.
        terminal.wait_for("the question", |text| {
            parts.iter().all(|part| text.contains(part))
        });
        // Esc closes the dialog, and the run continues.
        terminal.press("\u{1b}");
        terminal.wait_for("the plots", |text| !text.contains("[k]"));
        terminal.press("q");
        terminal.wait_for("the question again", |text| text.contains("[k]"));
        terminal.press(key);
        let (succeeded, text) = terminal.ended();
        assert_eq!(succeeded, success, "{text}");
        text.assert_has(expected);
        let saved = std::fs::read_dir(sandbox.path("run/checkpoints")).unwrap();
        assert_eq!(saved.count(), usize::from(success), "{text}");
    }
}

#[test]
fn the_quit_dialog_counts_the_steps_since_the_last_evaluation() {
    let sandbox = Sandbox::with_data();
    let mut terminal = Terminal::start(&sandbox, &line(""), 24, 80);
    // It is complete some time after its evaluation is shown.
    terminal.wait_for("the checkpoint of an evaluation", |text| {
        let saved = newest_step(&sandbox.path("run"));
        matches!(saved, Ok(Some(_))) && text.contains("valid ") && text.contains("tok/s")
    });
    terminal.press("q");
    terminal.wait_for("the question", |text| {
        text.contains("whose checkpoint is kept.") || text.contains("is kept; later steps")
    });
    terminal.press("k");
    let (success, text) = terminal.ended();
    assert!(!success, "{text}");
    let text = text.replace('\n', " ");
    text.assert_has("checkpoints/step-000");
}

#[test]
fn stopping_without_saving_keeps_the_newest_checkpoint() {
    let sandbox = Sandbox::with_data();
    sandbox.trains(&format!("--data data --out run --steps 3 {UNSAVED}"));
    let line = "train --resume run --steps 100000";
    let mut terminal = Terminal::start(&sandbox, line, 24, 80);
    terminal.wait_for("the dashboard", |text| text.contains("tok/s"));
    terminal.press("q");
    terminal.wait_for("the question", |text| {
        text.contains("after step 3, whose checkpoint is kept.")
    });
    terminal.press("k");
    let (success, text) = terminal.ended();
    assert!(!success, "{text}");
    let text = text.replace('\n', " ");
    text.assert_has("checkpoints/step-00000003");
    text.assert_has("emberlm train --resume run");
    assert!(sandbox.path("run/checkpoints/step-00000003").exists());
}

#[test]
fn a_resumed_run_shows_earlier_steps() {
    let sandbox = Sandbox::with_data();
    // Large steps keep the number of points low: from a thousand points on, the plot is downsampled and may
    // omit the first point.
    let line = "--data data --out run --steps 3 --set train.schedule.decay_steps=3 --set train.micro_batch=256";
    sandbox.trains(line);
    // The axis ends at the largest loss, which predates the resumption: later losses are below it.
    let validated = sandbox.events("run", "evaluation");
    let validated = validated.iter().map(|e| e["loss"].as_f64().unwrap());
    let largest = validated.chain(sandbox.losses("run")).fold(0.0, f64::max);
    let mut terminal = Terminal::start(&sandbox, "train --resume run --steps 100000", 24, 80);
    terminal.wait_for("the largest loss", |text| {
        text.contains(&format!("{largest:.2}"))
    });
    terminal.press("\u{3}");
    assert!(terminal.ended().0);
}
