//! `emberlm chat` in a pseudo-terminal: editing, history, Ctrl-C and Ctrl-D.

use std::io::{Read, Write};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::chat::{LETTERS, messages};
use super::support::Sandbox;
use super::support::terminal::Terminal;

const ENTER: &str = "\r";
const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";
const UP: &str = "\u{1b}[A";

fn start(sandbox: &Sandbox, more: &str) -> Terminal {
    let terminal = Terminal::start(sandbox, &format!("chat {LETTERS} {more}"), 24, 80);
    terminal.wait_for("the prompt", |text| {
        text.ends_with("\n>") || text.ends_with("\n> ")
    });
    terminal
}

/// Waits until `what` precedes the latest prompt.
#[track_caller]
fn answered(terminal: &Terminal, what: &str) {
    terminal.wait_for(what, |text| {
        let text = text.trim_end();
        text.strip_suffix('>')
            .is_some_and(|text| text.trim_end().ends_with(what))
    });
}

#[test]
fn lines_are_edited_and_stored_in_the_history() {
    let sandbox = Sandbox::with_letters();
    let mut terminal = start(&sandbox, "--max-new-tokens 4");
    // Two extra letters are deleted, and a missing one is inserted at the start.
    terminal.press("elloxx\u{7f}\u{7f}\u{1}h");
    terminal.press(ENTER);
    answered(&terminal, "aaaa\n(ended after 4 tokens)");
    // A continuation line, then pasted text with a backslash.
    terminal.press("two\\\rlines\r");
    answered(&terminal, "lines\naaaa\n(ended after 4 tokens)");
    terminal.press("\u{1b}[200~make \\\n  all\u{1b}[201~");
    terminal.press(ENTER);
    answered(&terminal, "all\naaaa\n(ended after 4 tokens)");
    terminal.press("/sa\t first.jsonl\r");
    answered(&terminal, "(saved)");
    terminal.press(CTRL_D);
    let (success, text) = terminal.ended();
    assert!(success, "{text}");
    let answer = json!({ "role": "assistant", "content": "aaaa" });
    let user = |text: &str| json!({ "role": "user", "content": text });
    assert_eq!(
        messages(&sandbox, "first.jsonl"),
        json!([
            user("hello"),
            answer,
            user("two\nlines"),
            answer,
            user("make \\\n  all"),
            answer
        ])
    );

    // The next session has the history, unless it is disabled.
    let mut terminal = start(&sandbox, "--max-new-tokens 4");
    terminal.press(&UP.repeat(2));
    terminal.wait_for("an older line", |text| text.contains("> make"));
    terminal.press(CTRL_C);
    terminal.wait_for("another prompt", |text| text.trim_end().ends_with("all\n>"));
    terminal.press(UP);
    terminal.wait_for("the newest line", |text| {
        text.contains("> /save first.jsonl")
    });
    terminal.press(CTRL_C);
    answered(&terminal, "> /save first.jsonl");
    terminal.press(CTRL_D);
    assert!(terminal.ended().0);
    let history = sandbox.bytes("home/emberlm/chat-history");
    let mut terminal = start(&sandbox, "--no-history");
    terminal.press("/reset\r");
    answered(&terminal, "(restarted)");
    terminal.press(CTRL_D);
    assert!(terminal.ended().0);
    assert_eq!(sandbox.bytes("home/emberlm/chat-history"), history);
}

#[test]
fn ctrl_c_only_ends_an_answer_or_clears_a_line() {
    let sandbox = Sandbox::with_letters();
    let mut terminal = start(&sandbox, "--max-new-tokens 100000");
    terminal.press("nonsense");
    terminal.wait_for("what is typed", |text| text.ends_with("> nonsense"));
    terminal.press(CTRL_C);
    terminal.wait_for("another prompt", |text| {
        text.trim_end().ends_with("nonsense^C\n>") || text.trim_end().ends_with("nonsense\n>")
    });
    terminal.press("hello\r");
    terminal.wait_for("an answer", |text| text.contains("aaaaaaaa"));
    // A user may press Ctrl-C repeatedly. After the end of the answer, it clears an empty line.
    terminal.press(&CTRL_C.repeat(3));
    terminal.wait_for("the answer's end", |text| {
        text.contains("(stopped by Ctrl-C: the generated part is kept)")
            && text.trim_end().ends_with("\n>")
    });
    // Text typed together with Ctrl-C is discarded with its line, so wait.
    std::thread::sleep(Duration::from_millis(300));
    terminal.press("/save kept.jsonl\r");
    answered(&terminal, "(saved)");
    let kept = messages(&sandbox, "kept.jsonl");
    assert_eq!(
        kept[0]["content"], "hello",
        "the line that was given up is no message"
    );
    let answer = kept[1]["content"].as_str().unwrap();
    assert!(
        answer.len() >= 8 && answer.len() < 8000 && answer.chars().all(|c| c == 'a'),
        "{answer}"
    );
    // The session continues.
    terminal.press("/set max-new-tokens 3\r");
    answered(&terminal, "(set)");
    terminal.press("again\r");
    answered(&terminal, "again\naaa\n(ended after 3 tokens)");
    terminal.press(CTRL_D);
    let (success, text) = terminal.ended();
    assert!(success, "{text}");
}

/// Without a terminal, Ctrl-C ends an answer, or the program if no answer is being generated.
#[test]
fn an_interrupt_ends_an_answer_and_then_the_program() {
    let sandbox = Sandbox::with_letters();
    let line = format!("chat {LETTERS} --max-new-tokens 100000");
    let mut command = sandbox.command(line.split_whitespace());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let interrupt = |child: &std::process::Child| {
        kill_process(Pid::from_child(child), Signal::INT).unwrap();
    };
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut answers = Vec::new();
    for question in ["hello\n", "again\n"] {
        input.write_all(question.as_bytes()).unwrap();
        let mut answer = [0; 8];
        output.read_exact(&mut answer).unwrap();
        interrupt(&child);
        let mut answer = answer.to_vec();
        while answer.last() != Some(&b'\n') {
            let mut next = [0];
            output.read_exact(&mut next).unwrap();
            answer.extend(next);
        }
        answers.push(String::from_utf8(answer).unwrap());
    }
    for answer in &answers {
        assert!(
            answer.len() < 8000 && answer.trim_end().chars().all(|c| c == 'a'),
            "{answer}"
        );
    }
    // Once it prints this, no answer is being generated.
    input.write_all(b"/show\n").unwrap();
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains("last answer ") {
        let mut next = [0];
        output.read_exact(&mut next).unwrap();
        shown.extend(next);
    }
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
