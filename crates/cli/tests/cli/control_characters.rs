//! Control characters in names, models and templates never reach a terminal.

use portable_pty::CommandBuilder;

use super::support::terminal::Terminal;
use super::support::{AssertText, Sandbox};

/// Sets the window title and the clipboard, and imitates an error message of the program.
const HOSTILE: &str = "a\u{1b}]0;owned\u{7}\u{1b}]52;c;b3duZWQ=\u{7}\u{9b}2J\u{202e}\nerror:x";

#[track_caller]
fn harmless(text: &str) {
    let harmful = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!text.contains(harmful), "{text:?}");
}

/// The bytes that a terminal receives from stdout. Stderr is excluded: the loading spinner moves the cursor
/// there.
fn shown_on_stdout(sandbox: &Sandbox, line: &str) -> String {
    let mut command = CommandBuilder::new("sh");
    command.arg("-c");
    command.arg(format!(
        "exec {} {line} 2>/dev/null",
        env!("CARGO_BIN_EXE_emberlm")
    ));
    let terminal = Terminal::start_command(sandbox, command, 24, 80);
    let bytes = Terminal::bytes_at_the_end(terminal);
    String::from_utf8(bytes).unwrap().replace("\r\n", "\n")
}

#[test]
fn errors_print_names_on_one_line() {
    let sandbox = Sandbox::with_char_model();
    std::fs::create_dir(sandbox.path(HOSTILE)).unwrap();
    let lines: [&[&str]; 7] = [
        &["info", HOSTILE],
        &["generate", HOSTILE],
        &["plot", HOSTILE, "--out", "a.svg"],
        &["train", "--resume", HOSTILE],
        &["prepare", HOSTILE, "--out", "b"],
        &["data", "inspect", HOSTILE],
        &["generate", "run", HOSTILE],
    ];
    for line in lines {
        let ran = sandbox.run(line);
        assert!(
            ran.code == Some(1) || ran.code == Some(2),
            "{line:?}: {ran}"
        );
        assert!(ran.stderr.starts_with("error: "), "{ran}");
        harmless(&ran.stderr);
        let forged = ran.stderr.lines().any(|line| line.starts_with("error:x"));
        assert!(!forged, "{ran}");
    }
    // Clap repeats unknown arguments in its messages.
    let ran = sandbox.run([HOSTILE]);
    assert!(ran.code == Some(2) && ran.stderr.contains("owned"), "{ran}");
    harmless(&ran.stderr);
    let ran = sandbox.run(["info", HOSTILE]);
    ran.says(r"a\u{1b}]0;owned\u{7}");
    // The list has one line per run.
    let name = HOSTILE.replace('\n', "");
    sandbox.write(&format!("runs/{HOSTILE}/config.toml"), "");
    sandbox.write(&format!("runs/{name}/config.toml"), "");
    let listed = sandbox.ok("runs");
    harmless(&listed);
    assert_eq!(listed.lines().count(), 3, "{listed}");
}

/// XML has no notation for most control characters: a picture with one cannot be opened.
#[test]
fn pictures_with_names_are_valid() {
    let sandbox = Sandbox::with_data();
    sandbox.trains("--data data --steps 4 --eval-interval 2 --out run");
    let name = format!("{}\u{ffff}", HOSTILE.replace('\n', ""));
    std::fs::rename(sandbox.path("run"), sandbox.path(&name)).unwrap();
    for file in ["a.svg", "a.html"] {
        sandbox.run(["plot", &name, "--out", file]).ok();
        let picture = sandbox.text(file);
        picture.assert_has("owned");
        harmless(&picture);
        assert!(!picture.contains('\u{ffff}'), "{picture}");
    }
}

#[test]
fn a_templates_error_is_harmless() {
    let sandbox = Sandbox::with_char_model();
    let text = HOSTILE.replace('\n', "");
    sandbox.write("t.jinja", format!("{{{{ raise_exception('{text}') }}}}"));
    let ran = sandbox.sh("echo hello | \"$EMBERLM\" chat run --chat-template t.jinja --no-history");
    ran.says("owned");
    harmless(&ran.stderr);
}

#[test]
fn a_models_text_is_harmless_in_a_terminal_and_exact_in_a_pipe() {
    let sandbox = Sandbox::with_char_model_of("\u{1b}\u{7}\u{9b}\u{202e}\n".repeat(100));
    let line = "generate run --max-new-tokens 40 --seed 1";
    let piped = sandbox.ok(line);
    assert!(
        piped.contains('\u{1b}') && piped.contains('\u{9b}'),
        "{piped:?}"
    );
    let shown = shown_on_stdout(&sandbox, line);
    harmless(&shown);
    assert!(shown.contains('\u{fffd}'), "{shown:?}");
    let expected = piped.replace(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}'], "\u{fffd}");
    assert_eq!(shown, expected);
    // JSON escapes the characters without changing the value.
    let line = format!("{line} --json");
    let piped: serde_json::Value = sandbox.json(&line);
    let shown = shown_on_stdout(&sandbox, &line);
    harmless(&shown);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&shown).unwrap(),
        piped
    );
}
