//! Models, tokens and datasets that cannot be used.

use std::fs;

use super::support::Sandbox;
use super::support::model::{tiny, write_run};

#[test]
fn no_such_model() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.words("generate nowhere --prompt a"), @r"
    exit 1
    --- stderr
    error: no such model: nowhere
    hint: give a run's directory (the --out of `emberlm train`), one of its checkpoints/step-…, or a Hugging Face model's
    ");
    insta::assert_snapshot!(sandbox.words("generate gpt2 --prompt a"), @r"
    exit 1
    --- stderr
    error: no such model: gpt2
    hint: `gpt2-small` is a preset, which has no weights yet: emberlm train --preset gpt2-small --data DATASET --out RUN
    hint: or initialize one: emberlm new --preset gpt2-small --out MODEL
    ");
}

#[test]
fn directories_that_are_no_models() {
    let sandbox = Sandbox::with_char_model();
    sandbox.write("hf/config.json", "{}");
    sandbox.write("hf/model.safetensors", "");
    sandbox.write("other/notes.md", "");
    sandbox.write("fresh/checkpoints/.step-00000001.partial/model.json", "");
    insta::assert_snapshot!(sandbox.words("generate hf --prompt a"), @r"
    exit 1
    --- stderr
    error: config.json: `model_type` = missing: must be given
    ");
    insta::assert_snapshot!(sandbox.words("generate other --prompt a"), @r"
    exit 1
    --- stderr
    error: other holds no model
    hint: give a run's directory (the --out of `emberlm train`), one of its checkpoints/step-…, or a Hugging Face model's
    ");
    insta::assert_snapshot!(sandbox.words("generate data --prompt a"), @r"
    exit 1
    --- stderr
    error: data is a dataset, not a model
    hint: train one on it: emberlm train --data data --out RUN
    ");
    insta::assert_snapshot!(sandbox.words("generate fresh --prompt a"), @r"
    exit 1
    --- stderr
    error: fresh has no checkpoint yet
    hint: a run writes them as it goes and when it ends, Ctrl-C included
    ");
    insta::assert_snapshot!(sandbox.words("generate text.txt --prompt a"), @r"
    exit 1
    --- stderr
    error: text.txt is a file, not a model's directory
    hint: give a run's directory (the --out of `emberlm train`), one of its checkpoints/step-…, or a Hugging Face model's
    ");
}

#[test]
fn a_damaged_checkpoint() {
    let sandbox = Sandbox::new();
    write_run(&sandbox.path("run"), &tiny(11), None, &[1]);
    let weights = sandbox.path("run/checkpoints/step-00000001/model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, bytes).unwrap();
    insta::assert_snapshot!(sandbox.words("generate run --tokens 1"), @r"
    exit 1
    --- stderr
    error: run/checkpoints/step-00000001 is not a complete checkpoint: model.safetensors is not the file that was written
    hint: use another checkpoint of the run
    ");
}

#[test]
fn tokens_outside_of_the_vocabulary() {
    let sandbox = Sandbox::with_char_model();
    insta::assert_snapshot!(sandbox.words("generate run --tokens 1,99"), @r"
    exit 1
    --- stderr
    error: token 99 at position 1 is outside of the vocabulary of 12
    hint: this model's ids are 0 to 11
    ");
    insta::assert_snapshot!(sandbox.words("logits run --tokens 1,99 --out f"), @r"
    exit 1
    --- stderr
    error: token 99 at position 1 is outside of the vocabulary of 12
    hint: this model's ids are 0 to 11
    ");
    assert!(!sandbox.path("f").exists());
}

#[test]
fn characters_that_the_tokenizer_lacks() {
    insta::assert_snapshot!(Sandbox::with_char_model().words("generate run --prompt hello?"), @r"
    exit 1
    --- stderr
    error: character '?' at position 5 is not among the 12 characters of this tokenizer
    hint: a char tokenizer has only the characters of its corpus
    ");
}

#[test]
fn more_tokens_than_the_context() {
    let line = "logits run --tokens 1,1,1,1,1,1,1,1,1 --out f";
    insta::assert_snapshot!(Sandbox::with_char_model().words(line), @r"
    exit 1
    --- stderr
    error: 9 tokens are more than the model's context of 8
    hint: pass at most 8 tokens
    ");
}

/// `chat` and `serve` refuse such prompts, too.
#[test]
fn prompts_that_exceed_the_context() {
    let sandbox = Sandbox::with_char_model();
    for options in ["", "--json --max-new-tokens 1", "--draft run", "--beams 2"] {
        let line = format!("generate run --tokens 1,1,1,1,1,1,1,1,1 {options}");
        insta::allow_duplicates! {
            insta::assert_snapshot!(sandbox.words(&line), @r"
            exit 1
            --- stderr
            error: the prompt has 9 tokens, more than the model's context of 8
            hint: shorten it: only its last 8 tokens could affect the text
            ");
        }
    }
    sandbox
        .words("generate run --tokens 1,1,1,1,1,1,1,1 --json")
        .ok();
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
    insta::assert_snapshot!(sandbox.words("eval run --data bytes"), @r"
    exit 1
    --- stderr
    error: bytes was made with another tokenizer than the model's: byte (257 ids, 26f1e0d0…) there, char (12 ids, f1c405a7…) in run/checkpoints/step-00000001
    hint: prepare the text again with --tokenizer char
    ");
}

#[test]
fn a_dataset_of_more_ids_than_the_model_has() {
    let sandbox = Sandbox::with_char_model();
    write_run(&sandbox.path("small"), &tiny(5), None, &[1]);
    insta::assert_snapshot!(sandbox.words("eval small --data data"), @r"
    exit 1
    --- stderr
    error: data has 12 token ids, but the model in small/checkpoints/step-00000001 has 5
    hint: prepare the text again with the model's tokenizer
    ");
}

#[test]
fn no_such_dataset() {
    insta::assert_snapshot!(Sandbox::with_char_model().words("eval run --data nowhere"), @r"
    exit 1
    --- stderr
    error: nowhere does not exist
    hint: make a dataset first: emberlm prepare FILE… --out DATASET --tokenizer gpt2
    ");
}

#[test]
fn an_empty_split() {
    let sandbox = Sandbox::with_char_model();
    sandbox
        .words("prepare text.txt --out all --tokenizer char --val-fraction 0")
        .ok();
    insta::assert_snapshot!(sandbox.words("eval run --data all"), @r"
    exit 1
    --- stderr
    error: the val split of all has no token to predict
    hint: evaluate the other one with --split, or prepare the dataset with a --val-fraction
    ");
}
