//! Failures of `emberlm prepare`: each message states cause, place and fix, and no files are left behind.

use super::support::Sandbox;

#[test]
fn a_missing_file() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.words("prepare nowhere.txt --out d --tokenizer byte"), @r"
    exit 1
    --- stderr
    error: no such file or folder: nowhere.txt
    ");
    assert!(sandbox.names().is_empty());
}

#[test]
fn invalid_utf8() {
    let sandbox = Sandbox::new();
    sandbox.write("latin1.txt", b"caf\xE9 au lait");
    insta::assert_snapshot!(sandbox.words("prepare latin1.txt --out d --tokenizer byte"), @r"
    exit 1
    --- stderr
    error: latin1.txt is not UTF-8 text: the first wrong byte is at offset 3
    hint: convert it first, for example: iconv -f LATIN1 -t UTF-8 OLD.txt > NEW.txt
    ");
    assert_eq!(sandbox.names(), ["latin1.txt"]);
}

#[test]
fn an_empty_file() {
    let sandbox = Sandbox::new();
    sandbox.write("texts/a.txt", "text");
    sandbox.write("texts/empty.txt", "");
    insta::assert_snapshot!(sandbox.words("prepare texts --out d --tokenizer byte"), @r"
    exit 1
    --- stderr
    error: texts/empty.txt is empty
    hint: leave it out: a document needs some text
    ");
    assert_eq!(sandbox.names(), ["texts"]);
}

#[test]
fn an_empty_folder() {
    let sandbox = Sandbox::new();
    sandbox.write("texts/.hidden", "text");
    insta::assert_snapshot!(sandbox.words("prepare texts --out d --tokenizer byte"), @r"
    exit 1
    --- stderr
    error: texts holds no files (hidden files and links are not read)
    ");
}

#[test]
fn a_text_too_short_to_be_split() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "x");
    insta::assert_snapshot!(sandbox.words("prepare a.txt --out d --tokenizer byte"), @r"
    exit 1
    --- stderr
    error: the train split would be empty: `val_fraction` 0.1 of 1 characters
    hint: give more text, or a lower --val-fraction
    ");
}

#[test]
fn an_existing_dataset_without_force() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "some text");
    sandbox.words("prepare a.txt --out d --tokenizer byte").ok();
    insta::assert_snapshot!(sandbox.words("prepare a.txt --out d --tokenizer byte"), @r"
    exit 1
    --- stderr
    error: d already exists
    hint: replace it with --force, or choose another --out
    ");
}

#[test]
fn force_only_replaces_datasets() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "some text");
    sandbox.write("photos/1.jpg", "");
    insta::assert_snapshot!(sandbox.words("prepare a.txt --out photos --tokenizer byte --force"), @r"
    exit 1
    --- stderr
    error: photos is not an emberlm dataset and is not replaced: cannot read the dataset's [FOLDER]/photos/dataset.json: No such file or directory (os error 2)
    hint: choose another --out, or move the folder away yourself
    ");
    assert!(sandbox.path("photos/1.jpg").exists());
}

#[test]
fn an_unfinished_dataset() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "some text");
    sandbox.write(".d.partial/progress.json", "{}");
    sandbox.write(".d.partial/data/train_00000.bin", "");
    insta::assert_snapshot!(sandbox.words("prepare a.txt --out d --tokenizer byte"), @r"
    exit 1
    --- stderr
    error: d was begun and now is not finished
    hint: repeat the command with --resume to continue it, or with --force to start over
    ");
    // Damaged progress notes cannot be resumed from.
    let ran = sandbox.words("prepare a.txt --out d --tokenizer byte --resume");
    assert_eq!(ran.code, Some(1), "{ran}");
    sandbox
        .words("prepare a.txt --out d --tokenizer byte --force")
        .ok();
    assert_eq!(sandbox.names(), ["a.txt", "d"]);
}

#[test]
fn contradictory_split_options_are_rejected() {
    let sandbox = Sandbox::new();
    let line = "prepare a.txt --out d --tokenizer byte --split-by hash --val b.txt";
    insta::assert_snapshot!(sandbox.words(line), @r"
    exit 2
    --- stderr
    error: inputs for validation are named, but the split is not by file
    ");
}
