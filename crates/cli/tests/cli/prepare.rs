//! Successful runs of `emberlm prepare`.

use std::io::Write;
use std::process::Stdio;

use emberlm_data::{Dataset, Split};

use super::support::{AssertText, Sandbox};

/// The text of a split.
fn text(dataset: &Dataset, split: Split) -> String {
    let tokens = dataset.split(split).unwrap();
    let ids = tokens.read(0, tokens.len()).unwrap();
    dataset.tokenizer().decode(&ids).unwrap()
}

#[test]
fn a_char_dataset() {
    let sandbox = Sandbox::new();
    sandbox.write("text.txt", "to be or not to be\n".repeat(10));
    sandbox.check_messages("prepare");
    let dataset = Dataset::open(sandbox.path("data/be")).unwrap();
    dataset.verify().unwrap();
    assert_eq!(
        text(&dataset, Split::Train),
        "to be or not to be\n".repeat(9)
    );
    assert_eq!(text(&dataset, Split::Val), "to be or not to be\n");
    assert_eq!(
        dataset.manifest().command,
        "emberlm prepare text.txt --out data/be --tokenizer char"
    );
}

#[test]
fn byte_and_byte_pair_datasets_of_a_folder() {
    let sandbox = Sandbox::new();
    sandbox.write("texts/a.txt", "One small step. ".repeat(20));
    sandbox.write("texts/deep/b.txt", "Grüße aus 東京. ".repeat(20));
    for kind in ["byte", "gpt2", "cl100k"] {
        let summary = sandbox.ok(&format!(
            "prepare texts --out {kind} --tokenizer {kind} --val-fraction 0.25"
        ));
        summary.assert_has("2 documents");
        summary.assert_has(&format!("Next: emberlm train --data {kind} --preset "));
        let dataset = Dataset::open(sandbox.path(kind)).unwrap();
        let all = text(&dataset, Split::Train) + &text(&dataset, Split::Val);
        assert_eq!(all.matches("One small step. ").count(), 20, "{kind}");
        assert_eq!(dataset.manifest().splits.val.documents, 1);
    }
}

#[test]
fn shards_have_a_maximum_size() {
    let sandbox = Sandbox::new();
    sandbox.write("text.txt", "abcdefghij".repeat(10));
    let summary =
        sandbox.ok("prepare text.txt --out d --tokenizer byte --shard-tokens 40 --val-fraction 0");
    summary.assert_has("101 tokens   1 document  3 shards");
}

#[test]
fn paths_may_contain_unicode_and_spaces() {
    let sandbox = Sandbox::new();
    sandbox.write("dätä/日本 語.txt", "いろはにほへと ちりぬるを");
    let summary = sandbox
        .run([
            "prepare",
            "dätä/日本 語.txt",
            "--out",
            "düne set",
            "--tokenizer",
            "char",
        ])
        .ok();
    assert!(
        summary.ends_with(
            "Next: emberlm train --data 'düne set' --preset char-nano --out 'runs/düne set'\n"
        ),
        "{summary}"
    );
    let dataset = Dataset::open(sandbox.path("düne set")).unwrap();
    assert_eq!(
        dataset.manifest().command,
        "emberlm prepare 'dätä/日本 語.txt' --out 'düne set' --tokenizer char"
    );
}

#[test]
fn force_replaces_a_dataset() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "first text");
    sandbox.write("b.txt", "second text");
    sandbox.ok("prepare a.txt --out d --tokenizer byte");
    sandbox.ok("prepare b.txt --out d --tokenizer byte --force");
    let dataset = Dataset::open(sandbox.path("d")).unwrap();
    assert!(text(&dataset, Split::Train).starts_with("second"));
    assert_eq!(sandbox.names(), ["a.txt", "b.txt", "d"]);
}

#[test]
fn standard_input_is_an_input() {
    let sandbox = Sandbox::new();
    let line = "prepare - --out d --tokenizer byte --val-fraction 0.5";
    let mut command = sandbox.command(line.split_whitespace());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all("from elsewhere".as_bytes()).unwrap();
    drop(stdin);
    assert!(child.wait_with_output().unwrap().status.success());
    let dataset = Dataset::open(sandbox.path("d")).unwrap();
    assert!(text(&dataset, Split::Train).starts_with("from el"));
    assert!(text(&dataset, Split::Val).starts_with("sewhere"));
    assert_eq!(sandbox.names(), ["d"]);
}

#[test]
fn files_of_the_validation_split() {
    let sandbox = Sandbox::new();
    sandbox.write("train/a.txt", "for training");
    sandbox.write("val/b.txt", "for validation");
    sandbox.check_messages("prepare_validation");
}

#[test]
fn duplicates_are_reported_or_removed() {
    let sandbox = Sandbox::new();
    let text = "The same words again and again.\n".repeat(30);
    for name in ["a", "b", "c"] {
        sandbox.write(&format!("texts/{name}.txt"), &text);
    }
    sandbox.check_messages("prepare_duplicates");
}

#[test]
#[cfg(unix)]
fn inputs_are_only_read() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = Sandbox::new();
    sandbox.write("texts/a.txt", "some text");
    let mode = |path: &str, mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(sandbox.path(path), permissions).unwrap();
    };
    mode("texts/a.txt", 0o444);
    mode("texts", 0o555);
    sandbox.ok("prepare texts --out d --tokenizer byte");
    mode("texts", 0o755);
}

#[test]
#[cfg(unix)]
fn an_interrupted_prepare_can_be_continued() {
    use rustix::process::{Pid, Signal, kill_process};
    let sandbox = Sandbox::new();
    let words = ["prepare", "-", "--out", "d", "--tokenizer", "byte"];
    let mut command = sandbox.command(words);
    // The process blocks on its input.
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let input = child.stdin.take();
    while !sandbox.path(".d.partial/stdin.part").exists() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(input);
    assert_eq!(output.status.code(), Some(130));
    insta::assert_snapshot!(String::from_utf8(output.stderr).unwrap(), @r"
    error: stopped before its end
    hint: finished work is kept: repeat the command with --resume
    ");
    sandbox.write("text.txt", "some text");
    let file = std::fs::File::open(sandbox.path("text.txt")).unwrap();
    let mut command = sandbox.command(words);
    let output = command.arg("--resume").stdin(file).output().unwrap();
    assert!(output.status.success());
    let dataset = Dataset::open(sandbox.path("d")).unwrap();
    assert!(text(&dataset, Split::Train).starts_with("some tex"));
    assert_eq!(
        dataset.manifest().command,
        "emberlm prepare - --out d --tokenizer byte"
    );
    assert_eq!(sandbox.names(), ["d", "text.txt"]);
}
