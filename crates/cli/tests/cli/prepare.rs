//! `emberlm prepare`, when it goes well.

use emberlm_data::{Dataset, Split};

use super::support::Sandbox;

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
    insta::assert_snapshot!(sandbox.words("prepare text.txt --out data/be --tokenizer char"), @r"
    exit 0
    --- stdout
    Prepared data/be with the char tokenizer (8 ids)
      train  171 tokens  1 document  1 shard
      val     19 tokens  1 document  1 shard
      1.00 bytes per token
    Next: emberlm train --data data/be --preset char-nano --out runs/be
    ");
    let dataset = Dataset::open(&sandbox.path("data/be")).unwrap();
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
        let summary = sandbox
            .words(&format!(
                "prepare texts --out {kind} --tokenizer {kind} --val-fraction 0.25"
            ))
            .ok();
        assert!(summary.contains("2 documents"), "{summary}");
        assert!(
            summary.contains(&format!("Next: emberlm train --data {kind} --preset ")),
            "{summary}"
        );
        let dataset = Dataset::open(&sandbox.path(kind)).unwrap();
        let all = text(&dataset, Split::Train) + &text(&dataset, Split::Val);
        assert_eq!(all.matches("One small step. ").count(), 20, "{kind}");
        assert_eq!(dataset.manifest().splits.val.documents, 1);
    }
}

#[test]
fn shards_have_at_most_so_many_tokens() {
    let sandbox = Sandbox::new();
    sandbox.write("text.txt", "abcdefghij".repeat(10));
    let summary = sandbox
        .words("prepare text.txt --out d --tokenizer byte --shard-tokens 40 --val-fraction 0")
        .ok();
    assert!(
        summary.contains("101 tokens   1 document  3 shards"),
        "{summary}"
    );
}

#[test]
fn paths_of_any_script_and_with_blanks() {
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
    let dataset = Dataset::open(&sandbox.path("düne set")).unwrap();
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
    sandbox.words("prepare a.txt --out d --tokenizer byte").ok();
    sandbox
        .words("prepare b.txt --out d --tokenizer byte --force")
        .ok();
    let dataset = Dataset::open(&sandbox.path("d")).unwrap();
    assert!(text(&dataset, Split::Train).starts_with("second"));
    assert_eq!(sandbox.names(), ["a.txt", "b.txt", "d"]);
}
