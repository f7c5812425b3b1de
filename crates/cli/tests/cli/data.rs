//! `emberlm data`: importing, exporting, verifying and inspecting datasets.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use super::support::{AssertText, Sandbox};

impl Sandbox {
    /// Writes nanoGPT's folder `nano`, as its `data/shakespeare_char/prepare.py` would.
    fn nano_gpt(&self, text: &str) {
        let chars: BTreeSet<char> = text.chars().collect();
        let chars: Vec<char> = chars.into_iter().collect();
        let id = |c: char| chars.iter().position(|&other| other == c).unwrap() as u16;
        let ids: Vec<u16> = text.chars().map(id).collect();
        let (train, val) = ids.split_at((ids.len() as f64 * 0.9) as usize);
        let bytes = |ids: &[u16]| {
            ids.iter()
                .flat_map(|id| id.to_le_bytes())
                .collect::<Vec<u8>>()
        };
        self.write("nano/input.txt", text);
        self.write("nano/train.bin", bytes(train));
        self.write("nano/val.bin", bytes(val));
        self.write("nano/meta.pkl", "a pickle");
    }
}

#[test]
fn an_adopted_dataset_trains_as_one_prepared_from_the_same_text() {
    let sandbox = Sandbox::with_data();
    let text = sandbox.text("text.txt");
    sandbox.nano_gpt(&text);
    sandbox.ok("data adopt nano --tokenizer char --alphabet nano/input.txt");
    let evaluations = ["data", "nano"].map(|data| {
        sandbox.trains(&format!("--data {data} --out runs/{data} --steps 3"));
        sandbox.events(&format!("runs/{data}"), "evaluation")
    });
    assert_eq!(sandbox.losses("runs/nano"), sandbox.losses("runs/data"));
    assert_eq!(sandbox.losses("runs/nano").len(), 3);
    assert_eq!(evaluations[0], evaluations[1]);
}

#[test]
fn adopt_reports_its_findings_and_changes_no_other_file() {
    let sandbox = Sandbox::new();
    sandbox.nano_gpt(&"to be or not to be\n".repeat(10));
    sandbox.check_messages("adopt");
    assert_eq!(
        sandbox.value("nano/dataset.json")["command"],
        "emberlm data adopt nano --tokenizer char --alphabet nano/input.txt"
    );
    // The export is byte-identical to the original.
    for file in ["train.bin", "val.bin"] {
        let [ours, theirs] = ["again", "nano"].map(|at| sandbox.bytes(format!("{at}/{file}")));
        assert_eq!(ours, theirs);
    }
}

#[test]
fn adopt_errors_have_hints() {
    let sandbox = Sandbox::new();
    sandbox.nano_gpt("some text\n");
    sandbox.write("both/train.bin", "");
    sandbox.write("both/part.bin", "xx");
    sandbox.write("large/train.bin", [0xFF; 4]);
    sandbox.write("other/train.bin", [1, 0, 2, 0]);
    sandbox.check_messages("adopt_errors");
}

#[test]
fn verify_reports_every_problem_and_fails() {
    let sandbox = Sandbox::new();
    sandbox.write("text.txt", "abcdefghij".repeat(10));
    sandbox.ok("prepare text.txt --out d --tokenizer byte --shard-tokens 50");
    let bytes = sandbox.bytes("d/train_00000.bin");
    sandbox.write("d/train_00000.bin", &bytes[..1100]);
    fs::remove_file(sandbox.path("d/val_00000.bin")).unwrap();
    sandbox.check_messages("verify");
    let ran = sandbox.words("data verify d --json").exits(1);
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(found["whole"], false);
    assert_eq!(found["files"][1]["problems"], Value::Array(Vec::new()));
    assert_eq!(found["files"][2]["file"], "val_00000.bin");
    assert_eq!(found["files"][2]["problems"].as_array().unwrap().len(), 1);
}

#[test]
fn inspect_prints_a_page() {
    let sandbox = Sandbox::new();
    for (name, text) in [
        ("a", "the same text\n"),
        ("b", "the same text\n"),
        (
            "c",
            "\u{1b}[31mred\u{7} and a longer text than the others, which has 漢字漢字漢字漢字 too\n",
        ),
        ("d", "the same text\n"),
    ] {
        sandbox.write(&format!("texts/{name}.txt"), text);
    }
    sandbox.ok("prepare texts --out d --tokenizer byte --val-fraction 0.13");
    let page = sandbox.ok("data inspect d --excerpts 3");
    // Chinese characters are two columns wide.
    let columns = |line: &str| {
        line.chars()
            .map(|c| if c < '\u{3000}' { 1 } else { 2 })
            .sum::<usize>()
    };
    assert!(page.lines().all(|line| columns(line) <= 80), "{page}");
    assert!(
        !page.contains('\u{1b}') && !page.contains('\u{7}'),
        "{page}"
    );
    sandbox.check_messages("inspect");
    let found: Value = sandbox.json("data inspect d --json");
    assert_eq!(found["leaked"], 1);
    assert_eq!(found["train"]["found"]["duplicates"], 1);
    assert_eq!(
        found["train"]["found"]["lengths"]["histogram"][0]["from"],
        8
    );
    assert_eq!(found["excerpts"].as_array().unwrap().len(), 3);
}

#[test]
fn exports_are_only_replaced_with_force() {
    let sandbox = Sandbox::new();
    sandbox.write("text.txt", "a small text");
    sandbox.ok("prepare text.txt --out düne --tokenizer byte");
    let export = |format: &str, more: &str| {
        sandbox.words(&format!(
            "data export düne --format {format} --out x {more}"
        ))
    };
    let shown = export("llmc", "--shard-tokens 8").ok();
    shown.assert_has("düne_train_000001.bin");
    export("llmc", "--name tiny --force").ok();
    let mut names: Vec<_> = fs::read_dir(sandbox.path("x"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["tiny_train_000000.bin", "tiny_val_000000.bin"]);
    sandbox.ok("prepare text.txt --out wide --tokenizer cl100k");
    sandbox.check_messages("export_dataset");
    assert_eq!(sandbox.names(), ["düne", "text.txt", "wide", "x"]);
}
