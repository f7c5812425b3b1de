//! `prepare` under a memory limit, on texts without positions to split at.

use std::process::Command;

use super::support::{CommandOutput, Sandbox};

/// Bytes per text. Merging it as a whole, at 30 bytes per merge and 4 per id, would exceed the limit several
/// times.
const TEXT: usize = 16 << 20;

/// Prepares `file` with two threads and a limit of `kib` KiB.
fn prepare(sandbox: &Sandbox, file: &str, tokenizer: &str, kib: usize) -> CommandOutput {
    let shell = format!("ulimit -d {kib}; exec \"$0\" \"$@\"");
    let line = format!(
        "prepare {file} --out data --force --val-fraction 0 --threads 2 --tokenizer {tokenizer}"
    );
    let mut command = Command::new("sh");
    command.current_dir(sandbox.path("")).args(["-c", &shell]);
    command
        .arg(env!("CARGO_BIN_EXE_emberlm"))
        .args(line.split_whitespace());
    command.output().unwrap().into()
}

/// The number of tokens and of inexact splits.
#[track_caller]
fn prepared(ran: &CommandOutput) -> (u64, u64) {
    assert_eq!(ran.code, Some(0), "{ran}");
    let number = |text: &str| text.replace(',', "").parse().unwrap();
    let mut words = ran
        .stdout
        .split_whitespace()
        .skip_while(|word| *word != "train");
    let tokens = number(words.nth(1).unwrap());
    let cuts = ran
        .stdout
        .split_once("texts were cut at ")
        .or(ran.stderr.split_once("texts were cut at "));
    let cuts = cuts.map_or(0, |(_, rest)| {
        number(rest.split_whitespace().next().unwrap())
    });
    (tokens, cuts)
}

#[test]
fn long_unsplittable_runs_take_bounded_memory() {
    let sandbox = Sandbox::new();
    let marks = "e".to_owned() + &"\u{301}".repeat(TEXT / 2);
    let texts = [
        ("nul", "\0".repeat(TEXT), TEXT),
        ("blanks", " ".repeat(TEXT), TEXT),
        ("letters", "a".repeat(TEXT), TEXT / 4),
        ("marks", marks, TEXT + 1),
    ];
    let pieces = TEXT / (256 << 10);
    for (name, text, expected) in texts {
        sandbox.write(name, text);
        let (tokens, cuts) = prepared(&prepare(&sandbox, name, "gpt2", 350_000));
        if name != "marks" {
            // The token count of tiktoken on the whole text, and one token at the start of the document.
            assert_eq!(tokens, expected as u64 + 1, "{name}");
        }
        assert!(
            cuts >= pieces as u64 - 1 && cuts <= pieces as u64,
            "{name}: {cuts}"
        );
    }
    // Tokenizers without merges are exact.
    assert_eq!(
        prepared(&prepare(&sandbox, "nul", "byte", 350_000)),
        (TEXT as u64 + 1, 0)
    );
    assert_eq!(
        prepared(&prepare(&sandbox, "blanks", "char", 350_000)),
        (TEXT as u64, 0)
    );
}

#[test]
fn a_long_record_takes_bounded_memory() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "line.jsonl",
        format!("{{\"text\": \"{}\"}}\n", " ".repeat(TEXT)),
    );
    let (tokens, cuts) = prepared(&prepare(&sandbox, "line.jsonl", "cl100k", 450_000));
    assert!(tokens > 1 && cuts > 0, "{tokens} {cuts}");
    // A record over the length limit is rejected with its line number, without being held in memory.
    sandbox.write(
        "long.jsonl",
        format!("{{\"text\": \"{}\"}}\n", " ".repeat(65 << 20)),
    );
    let ran = prepare(&sandbox, "long.jsonl", "gpt2", 450_000);
    assert_eq!(ran.code, Some(1), "{ran}");
    ran.says("long.jsonl: line 1: the line is longer than 64 MiB");
}

#[test]
fn a_tokenizer_without_known_cuts_takes_bounded_memory() {
    let sandbox = Sandbox::new();
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tokenizer/tests/fixtures/files/llama.json"
    );
    sandbox.write("text", "some words\n".repeat(TEXT / 2 / 11));
    let (_, cuts) = prepared(&prepare(&sandbox, "text", file, 1_100_000));
    assert_eq!(cuts, 3);
}
