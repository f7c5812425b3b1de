//! Models, tokens and datasets that cannot be used.

use std::fs;

use super::support::Sandbox;
use super::support::model::{tiny, write_run};

#[test]
fn no_such_model() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.words("generate nowhere --prompt a"), @"");
    insta::assert_snapshot!(sandbox.words("generate gpt2 --prompt a"), @"");
}

#[test]
fn directories_that_are_no_models() {
    let sandbox = Sandbox::with_char_model();
    sandbox.write("hf/config.json", "{}");
    sandbox.write("hf/model.safetensors", "");
    sandbox.write("other/notes.md", "");
    sandbox.write("fresh/checkpoints/.step-00000001.partial/model.json", "");
    insta::assert_snapshot!(sandbox.words("generate hf --prompt a"), @"");
    insta::assert_snapshot!(sandbox.words("generate other --prompt a"), @"");
    insta::assert_snapshot!(sandbox.words("generate data --prompt a"), @"");
    insta::assert_snapshot!(sandbox.words("generate fresh --prompt a"), @"");
    insta::assert_snapshot!(sandbox.words("generate text.txt --prompt a"), @"");
}

#[test]
fn a_damaged_checkpoint() {
    let sandbox = Sandbox::new();
    write_run(&sandbox.path("run"), &tiny(11), None, &[1]);
    let weights = sandbox.path("run/checkpoints/step-00000001/model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, bytes).unwrap();
    insta::assert_snapshot!(sandbox.words("generate run --tokens 1"), @"");
}

#[test]
fn tokens_outside_of_the_vocabulary() {
    let sandbox = Sandbox::with_char_model();
    insta::assert_snapshot!(sandbox.words("generate run --tokens 1,99"), @"");
    insta::assert_snapshot!(sandbox.words("logits run --tokens 1,99 --out f"), @"");
    assert!(!sandbox.path("f").exists());
}

#[test]
fn characters_that_the_tokenizer_lacks() {
    insta::assert_snapshot!(Sandbox::with_char_model().words("generate run --prompt hello?"), @"");
}

#[test]
fn more_tokens_than_the_context() {
    let line = "logits run --tokens 1,1,1,1,1,1,1,1,1 --out f";
    insta::assert_snapshot!(Sandbox::with_char_model().words(line), @"");
}

#[test]
fn logits_that_cannot_be_written() {
    let ran = Sandbox::with_char_model().words("logits run --tokens 1 --out nowhere/f");
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.starts_with("error: nowhere/f: "),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_dataset_of_another_tokenizer() {
    let sandbox = Sandbox::with_char_model();
    sandbox
        .words("prepare text.txt --out bytes --tokenizer byte")
        .ok();
    insta::assert_snapshot!(sandbox.words("eval run --data bytes"), @"");
}

#[test]
fn a_dataset_of_more_ids_than_the_model_has() {
    let sandbox = Sandbox::with_char_model();
    write_run(&sandbox.path("small"), &tiny(5), None, &[1]);
    insta::assert_snapshot!(sandbox.words("eval small --data data"), @"");
}

#[test]
fn no_such_dataset() {
    insta::assert_snapshot!(Sandbox::with_char_model().words("eval run --data nowhere"), @"");
}

#[test]
fn an_empty_split() {
    let sandbox = Sandbox::with_char_model();
    sandbox
        .words("prepare text.txt --out all --tokenizer char --val-fraction 0")
        .ok();
    insta::assert_snapshot!(sandbox.words("eval run --data all"), @"");
}
