//! `emberlm prepare`, when it does not: each says what, where and what to do, and leaves nothing behind.

use super::support::Sandbox;

#[test]
fn a_missing_file() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.words("prepare nowhere.txt --out d --tokenizer byte"), @"");
    assert!(sandbox.names().is_empty());
}

#[test]
fn invalid_utf8() {
    let sandbox = Sandbox::new();
    sandbox.write("latin1.txt", b"caf\xE9 au lait");
    insta::assert_snapshot!(sandbox.words("prepare latin1.txt --out d --tokenizer byte"), @"");
    assert_eq!(sandbox.names(), ["latin1.txt"]);
}

#[test]
fn an_empty_file() {
    let sandbox = Sandbox::new();
    sandbox.write("texts/a.txt", "text");
    sandbox.write("texts/empty.txt", "");
    insta::assert_snapshot!(sandbox.words("prepare texts --out d --tokenizer byte"), @"");
    assert_eq!(sandbox.names(), ["texts"]);
}

#[test]
fn an_empty_folder() {
    let sandbox = Sandbox::new();
    sandbox.write("texts/.hidden", "text");
    insta::assert_snapshot!(sandbox.words("prepare texts --out d --tokenizer byte"), @"");
}

#[test]
fn a_text_too_short_to_be_split() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "x");
    insta::assert_snapshot!(sandbox.words("prepare a.txt --out d --tokenizer byte"), @"");
}

#[test]
fn an_existing_dataset_without_force() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "some text");
    sandbox.words("prepare a.txt --out d --tokenizer byte").ok();
    insta::assert_snapshot!(sandbox.words("prepare a.txt --out d --tokenizer byte"), @"");
}

#[test]
fn force_leaves_what_is_no_dataset_alone() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "some text");
    sandbox.write("photos/1.jpg", "");
    insta::assert_snapshot!(sandbox.words("prepare a.txt --out photos --tokenizer byte --force"), @"");
    assert!(sandbox.path("photos/1.jpg").exists());
}
