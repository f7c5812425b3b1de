//! `emberlm export --format gguf`, and the written files as MODEL.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use emberlm_data::Manifest;
use emberlm_model::{Activation, ModelConfig};

use super::support::Sandbox;
use super::support::model::{tiny, write_run};

const GREEDY: &str = "--prompt abc --temperature 0 --max-new-tokens 9 --json";

/// A directory of the model crate's fixtures.
fn fixture(folder: &str) -> String {
    let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures");
    crates.join(folder).to_str().unwrap().to_owned()
}

/// A run `run` of a GPT-2 with the activation that its files stand for.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("corpus.txt", "hello small world\n".repeat(20));
    sandbox
        .words("prepare corpus.txt --out data --tokenizer byte")
        .ok();
    let spec = Manifest::read(&sandbox.path("data")).unwrap().tokenizer;
    let mut model = ModelConfig {
        seq_len: 64,
        d_model: 32,
        ..tiny(257)
    };
    model.feed_forward.activation = Activation::GeluTanh;
    write_run(&sandbox.path("run"), &model, Some(&spec), &[1]);
    sandbox
}

fn tokens(sandbox: &Sandbox, model: &str) -> Value {
    let made: Value = sandbox.words(&format!("generate {model} {GREEDY}")).json();
    made["tokens"].clone()
}

#[test]
fn an_exported_file_gives_the_models_answers() {
    let sandbox = sandbox();
    let printed = sandbox
        .words("export run --format gguf --type f32 --out m.gguf")
        .ok();
    assert!(
        printed.starts_with("m.gguf: ") && printed.ends_with("of f32\n"),
        "{printed}"
    );
    let info: Value = sandbox.words("info m.gguf --json").json();
    assert_eq!(info["about"], "a GGUF file of type gpt2, stored in F32");
    assert_eq!(tokens(&sandbox, "m.gguf"), tokens(&sandbox, "run"));
    // A file of a file is the same.
    sandbox
        .words("export m.gguf --format gguf --type f32 --out again.gguf")
        .ok();
    let read = |name: &str| fs::read(sandbox.path(name)).unwrap();
    assert!(read("m.gguf") == read("again.gguf"));
}

#[test]
fn existing_files_are_replaced_only_with_force() {
    let sandbox = sandbox();
    sandbox.write("m.gguf", "before");
    let line = "export run --format gguf --type q8_0 --out m.gguf";
    insta::assert_snapshot!(sandbox.words(line), @r"
    exit 1
    --- stderr
    error: m.gguf is there already
    hint: choose another --out, or replace it with --force
    ");
    assert_eq!(fs::read(sandbox.path("m.gguf")).unwrap(), b"before");
    sandbox.words(&format!("{line} --force")).ok();
    tokens(&sandbox, "m.gguf");
    let refused = sandbox.words("export run --format gguf --out . --force");
    assert!(
        refused.stderr.starts_with("error: . is a folder\n"),
        "{refused}"
    );
}

#[test]
fn calibration_changes_the_rounding_of_matrices() {
    let sandbox = sandbox();
    sandbox.write("text.txt", "the cat sat on the mat. ".repeat(40));
    let line = "export run --format gguf --type q4_0 --out";
    sandbox.words(&format!("{line} plain.gguf")).ok();
    sandbox
        .words(&format!("{line} calibrated.gguf --calibration text.txt"))
        .ok();
    let read = |name: &str| fs::read(sandbox.path(name)).unwrap();
    assert!(read("plain.gguf") != read("calibrated.gguf"));
    sandbox
        .words(&format!(
            "{line} gptq.gguf --calibration text.txt --method gptq"
        ))
        .ok();
    assert!(read("gptq.gguf") != read("calibrated.gguf"));
    assert_eq!(read("gptq.gguf").len(), read("calibrated.gguf").len());
    sandbox.write("short.txt", "cat");
    // An importance matrix of llama.cpp, in its old form.
    sandbox.write(
        "imatrix.dat",
        b"\x01\0\0\0\x13\0\0\0blk.0.attn_q.weight\x05\0\0\0\x01\0\0\0\0\0\xc0\x7f",
    );
    let refused = sandbox.words(&format!("{line} matrix.gguf --calibration imatrix.dat"));
    assert!(
        refused.stderr.contains("hint: --calibration takes a text"),
        "{refused}"
    );
    let refused = sandbox.words(&format!("{line} short.gguf --calibration short.txt"));
    insta::assert_snapshot!(refused, @r"
    exit 1
    --- stderr
    error: short.txt: the text has 3 tokens; must have at least 64
    hint: give a text of a few thousand words, like those that the model will read
    ");
}

#[test]
fn methods_of_rounding_need_a_text_and_levels() {
    let sandbox = sandbox();
    insta::assert_snapshot!(
        sandbox.words("export run --format gguf --type q4_0 --method gptq --out m.gguf"),
        @r"
    exit 2
    --- stderr
    error: --method gptq needs a calibration text
    hint: add --calibration FILE
    ");
    sandbox.write("text.txt", "the cat sat on the mat. ".repeat(40));
    let line = "export run --format gguf --calibration text.txt --method gptq --out m.gguf";
    insta::assert_snapshot!(sandbox.words(line), @r"
    exit 2
    --- stderr
    error: --method gptq is not supported for --type f16: its numbers are not levels of a scale
    hint: choose a type such as q4_0 or q4_k_m
    ");
    assert!(!sandbox.path("m.gguf").exists());
}

#[test]
fn options_of_the_other_format_are_refused() {
    let sandbox = sandbox();
    insta::assert_snapshot!(sandbox.words("export run --type q8_0 --out m"), @r"
    exit 2
    --- stderr
    error: --type is an option of GGUF files
    hint: add --format gguf
    ");
    insta::assert_snapshot!(sandbox.words("export run --out m.gguf"), @r"
    exit 2
    --- stderr
    error: a model is written as a folder, not as a .gguf file: name it m
    hint: add --format gguf to write a GGUF file
    ");
    insta::assert_snapshot!(sandbox.words("export run --format gguf --dtype bf16 --out m.gguf"), @r"
    exit 2
    --- stderr
    error: --dtype is an option of Hugging Face directories
    hint: --type selects the types of a GGUF file
    ");
    assert!(!sandbox.path("m").exists() && !sandbox.path("m.gguf").exists());
}

#[test]
fn models_without_an_architecture_are_refused() {
    let sandbox = Sandbox::new();
    let export =
        |model: &str| sandbox.run(["export", model, "--format", "gguf", "--out", "m.gguf"]);
    let error = export(&fixture("families/gptj-whole")).stderr;
    assert!(
        error.starts_with("error: GGUF files have no architecture for the family `gptj`\nhint: it has those of llama, "),
        "{error}"
    );
    insta::assert_snapshot!(export(&fixture("encoders/bert-bare")), @r"
    exit 1
    --- stderr
    error: --format gguf is supported for decoders only
    hint: leave --format out
    ");
    insta::assert_snapshot!(export(&fixture("families/mistral-window")), @r#"
    exit 1
    --- stderr
    error: GGUF's architecture `llama` cannot express model.attention = {"kind":"softmax","window":{"tokens":7}}
    hint: without --format gguf, export writes a Hugging Face directory
    "#);
    assert!(!sandbox.path("m.gguf").exists());
}

#[test]
fn a_packed_file_is_exported_without_options() {
    let sandbox = sandbox();
    sandbox
        .words("export run --format gguf --type Q4_0 --out m.gguf")
        .ok();
    let printed = sandbox.words("export m.gguf --out whole").ok();
    assert!(
        printed.contains(" of f32, unpacked from q4_0, in 1 file"),
        "{printed}"
    );
    let of_f32 = "generate m.gguf --weights f32";
    let expected: Value = sandbox.words(&format!("{of_f32} {GREEDY}")).json();
    assert_eq!(tokens(&sandbox, "whole"), expected["tokens"]);
}

/// llama.cpp's program refuses without `--allow-requantize`.
#[test]
fn a_packed_file_that_is_rounded_again_causes_a_warning() {
    let sandbox = sandbox();
    let export = |from: &str, line: &str| {
        let ran = sandbox.words(&format!("export {from} --format gguf {line}"));
        assert_eq!(ran.code, Some(0), "{ran}");
        ran.stderr
    };
    assert_eq!(export("run", "--type q8_0 --out m.gguf"), "");
    let warning = "warning: the weights were rounded to q8_0 before, and are rounded again: \
        export the model that they were made of, if you have it\n";
    assert_eq!(export("m.gguf", "--type q4_0 --out a.gguf"), warning);
    assert_eq!(export("m.gguf", "--out b.gguf"), warning);
    assert_eq!(export("m.gguf", "--type f32 --out c.gguf"), "");
}

#[test]
fn packed_weights_are_not_packed_again_into_a_larger_format() {
    let sandbox = sandbox();
    sandbox
        .words("export run --format gguf --type q4_0 --out m.gguf")
        .ok();
    let stored = tokens(&sandbox, "m.gguf");
    let ran = sandbox.words(&format!("generate m.gguf --weights int8 {GREEDY}"));
    assert_eq!(ran.code, Some(0), "{ran}");
    let warning = "warning: --weights int8: the weights stay in q4_0, as they are stored in m.gguf: 8.0 bits per weight \
        would be no smaller than 4.5, and less exact\n";
    assert_eq!(ran.stderr, warning);
    let made: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(made["tokens"], stored);
    // Fewer bits, and the same format.
    sandbox
        .words("export run --format gguf --type q8_0 --out wide.gguf")
        .ok();
    for weights in ["q4_0", "q8_0", "int8", "f32"] {
        sandbox
            .words(&format!("generate wide.gguf --weights {weights} {GREEDY}"))
            .ok();
    }
}

#[test]
fn file_types_have_the_names_of_llama_cpp() {
    let sandbox = sandbox();
    // Rows of 32 elements: the matrices have other types than q4_k.
    sandbox
        .words("export run --format gguf --type q4_k_m --out m.gguf")
        .ok();
    let speeds: Value = sandbox
        .words("bench m.gguf --prompt 4 --decode 0 --repeat 1 --json")
        .json();
    assert_eq!(speeds[0]["weights"], "q4_k_m");
    let info: Value = sandbox.words("info m.gguf --json").json();
    assert_eq!(info["file_type"], "q4_k_m");
    assert_eq!(info["about"], "a GGUF file of type gpt2, stored in Q4_K_M");
    assert_eq!(info["chat_template"], Value::Null);
    assert_eq!(info["end_tokens"][0]["text"], "<|endoftext|>");
    let text = sandbox.words("info m.gguf").ok();
    let (_, texts) = text.split_once("\nTexts\n").expect("a section");
    for line in [
        "  file type      q4_k_m (tensors: ",
        "  end tokens     <|endoftext|> (256)\n",
        "  chat template  none\n",
    ] {
        assert!(texts.contains(line), "{line}: {texts}");
    }
}
