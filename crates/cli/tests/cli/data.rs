//! `emberlm data`: importing, exporting, verifying and inspecting datasets.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use super::support::Sandbox;
use super::support::train::trained;

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
    let text = fs::read_to_string(sandbox.path("text.txt")).unwrap();
    sandbox.nano_gpt(&text);
    sandbox
        .words("data adopt nano --tokenizer char --alphabet nano/input.txt")
        .ok();
    let evaluations = ["data", "nano"].map(|data| {
        trained(sandbox.train(&format!("--data {data} --out runs/{data} --steps 3")));
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
    insta::assert_snapshot!(sandbox.words("data adopt nano --tokenizer char --alphabet nano/input.txt"), @r"
    exit 0
    --- stdout
    Adopted nano with the char tokenizer (8 ids)
      train  171 tokens  1 document  1 shard
      val     19 tokens  1 document  1 shard
      1.00 bytes per token
    Next: emberlm train --data nano --preset char-nano --out runs/nano
    ");
    let manifest = fs::read_to_string(sandbox.path("nano/dataset.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(
        manifest["command"],
        "emberlm data adopt nano --tokenizer char --alphabet nano/input.txt"
    );
    insta::assert_snapshot!(sandbox.words("data verify nano"), @r"
    exit 0
    --- stdout
      ok     train.bin  171 tokens
      ok     val.bin     19 tokens
      other  input.txt
      other  meta.pkl
    nano is complete and undamaged
    ");
    // The export is byte-identical to the original.
    insta::assert_snapshot!(sandbox.words("data export nano --format nanogpt --out again"), @r"
    exit 0
    --- stdout
    Exported nano to again
      train.bin  171 tokens
      val.bin     19 tokens
    ");
    for file in ["train.bin", "val.bin"] {
        let [ours, theirs] = ["again", "nano"].map(|at| fs::read(sandbox.path(at).join(file)));
        assert_eq!(ours.unwrap(), theirs.unwrap());
    }
}

#[test]
fn adopt_errors_have_hints() {
    let sandbox = Sandbox::new();
    sandbox.nano_gpt("some text\n");
    insta::assert_snapshot!(sandbox.words("data adopt nano --tokenizer char"), @r"
    exit 1
    --- stderr
    error: the char tokenizer has no built-in vocabulary: it is built from the characters of a corpus
    hint: name the text that it was made of, as --alphabet input.txt
    ");
    insta::assert_snapshot!(sandbox.words("data adopt nano --tokenizer gpt2 --alphabet x"), @r"
    exit 2
    --- stderr
    error: only --tokenizer char has an --alphabet
    ");
    sandbox.write("nano/part.bin", "xx");
    insta::assert_snapshot!(sandbox.words("data adopt nano --tokenizer gpt2"), @r"
    exit 1
    --- stderr
    error: nano/part.bin: its name contains neither train nor val
    hint: select the files of each split, such as --train '*_train_*.bin' --val '*_val_*.bin'
    ");
    insta::assert_snapshot!(sandbox.words("data adopt nano --tokenizer gpt2 --val v* --train x*"), @r"
    exit 1
    --- stderr
    error: nano holds nothing for training: no file is named like x*
    hint: name the files with --train and --val, as --train '*_train_*.bin'
    ");
    sandbox.write("other/train.bin", [0xFF; 4]);
    insta::assert_snapshot!(sandbox.words("data adopt other --tokenizer gpt2"), @r"
    exit 1
    --- stderr
    error: other/train.bin: token 65535 at position 0 is not one of the 50257 ids of gpt2, nor is 1 more
    hint: another tokenizer made the file, or it is damaged, or no file of tokens
    ");
    sandbox.write("other/train.bin", [1, 0, 2, 0]);
    let adopted = sandbox.words("data adopt other --tokenizer gpt2");
    insta::assert_snapshot!(adopted, @r"
    exit 0
    --- stdout
    Adopted other with the gpt2 tokenizer (50,257 ids)
      train  2 tokens  0 documents   1 shard
      val    0 tokens  0 documents  0 shards
      1.00 bytes per token
    Next: emberlm train --data other --preset bpe-nano --out runs/other
    --- stderr
    warning: no end-of-text token in the train split: one long text, or another tokenizer's
    ");
}

#[test]
fn verify_reports_every_problem_and_fails() {
    let sandbox = Sandbox::new();
    sandbox.write("text.txt", "abcdefghij".repeat(10));
    sandbox
        .words("prepare text.txt --out d --tokenizer byte --shard-tokens 50")
        .ok();
    let bytes = fs::read(sandbox.path("d/train_00000.bin")).unwrap();
    sandbox.write("d/train_00000.bin", &bytes[..1100]);
    fs::remove_file(sandbox.path("d/val_00000.bin")).unwrap();
    insta::assert_snapshot!(sandbox.words("data verify d"), @r"
    exit 1
    --- stdout
      wrong  train_00000.bin  50 tokens
      ok     train_00001.bin  41 tokens
      wrong  val_00000.bin    11 tokens
    What is wrong:
      train_00000.bin: 1100 bytes, but the 50 tokens of its header need 1124
      val_00000.bin: No such file or directory (os error 2)
    --- stderr
    error: d differs from its manifest
    hint: take the files again from where they came from, or make the dataset again
    ");
    let ran = sandbox.words("data verify d --json");
    assert_eq!(ran.code, Some(1));
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
    sandbox
        .words("prepare texts --out d --tokenizer byte --val-fraction 0.13")
        .ok();
    let page = sandbox.words("data inspect d --excerpts 3").ok();
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
    insta::assert_snapshot!(page, @r##"
    d: byte (257 ids)
                               train          val
      shards                       1            1
      tokens                     114           17
      documents                    3            2
      text                     111 B         15 B
      bytes per token           0.97         0.88
      shortest document           14            1
      median                    14.0          7.5
      mean                      37.0          7.5
      longest                     83           14
      ids never used     226 (87.9%)  247 (96.1%)
      exact duplicates     1 (33.3%)     0 (0.0%)
      validation documents that are also in train: 1 (50.0%)

    Tokens per document of train
        8 to 15  2  ████████████████████████████████████████
       16 to 31  0
       32 to 63  0
      64 to 127  1  ████████████████████

    Most frequent tokens of train
       32  15  13.2%  " "
      116  12  10.5%  "t"
      101  11   9.6%  "e"
      104   8   7.0%  "h"
       97   6   5.3%  "a"
      111   4   3.5%  "o"
      115   4   3.5%  "s"
      151   4   3.5%  b"\x97"
      162   4   3.5%  b"\xa2"
      173   4   3.5%  b"\xad"
      188   4   3.5%  b"\xbc"
      229   4   3.5%  b"\xe5"
      230   4   3.5%  b"\xe6"
      109   3   2.6%  "m"
      110   3   2.6%  "n"
      114   3   2.6%  "r"
      120   3   2.6%  "x"
      256   3   2.6%  (end of text)
       10   2   1.8%  "\n"
      100   2   1.8%  "d"

    How documents begin
      train, document 0 of 14 tokens
        "the same text\n"
      train, document 1 of 14 tokens
        "the same text\n"
      train, document 2 of 83 tokens
        "\u{1b}[31mred\u{7} and a longer text than the others, which has 漢字漢字漢
        字漢字 too"
    "##);
    let found: Value = sandbox.words("data inspect d --json").json();
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
    sandbox
        .words("prepare text.txt --out düne --tokenizer byte")
        .ok();
    let export = |format: &str, more: &str| {
        sandbox.words(&format!(
            "data export düne --format {format} --out x {more}"
        ))
    };
    let shown = export("llmc", "--shard-tokens 8").ok();
    assert!(shown.contains("düne_train_000001.bin"), "{shown}");
    export("llmc", "--name tiny --force").ok();
    let mut names: Vec<_> = fs::read_dir(sandbox.path("x"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["tiny_train_000000.bin", "tiny_val_000000.bin"]);
    insta::assert_snapshot!(export("llmc", ""), @r"
    exit 1
    --- stderr
    error: x is there already
    hint: choose another --out, or replace it with --force
    ");
    insta::assert_snapshot!(export("npy", "--force"), @r"
    exit 1
    --- stderr
    error: x holds something that is not an export of this format
    hint: choose another --out
    ");
    sandbox
        .words("prepare text.txt --out wide --tokenizer cl100k")
        .ok();
    insta::assert_snapshot!(sandbox.words("data export wide --format nanogpt --out y"), @r"
    exit 1
    --- stderr
    error: wide cannot be written as nanogpt: 16 bits cannot represent the 100277 ids of cl100k
    hint: --format npy holds any dataset
    ");
    assert_eq!(sandbox.names(), ["düne", "text.txt", "wide", "x"]);
    assert_eq!(
        sandbox.words("data export wide --format csv --out y").code,
        Some(2)
    );
}
