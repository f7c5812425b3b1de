//! `emberlm export --format gguf`, and the written files as MODEL.

use serde_json::Value;

use emberlm_model::{Activation, ModelConfig};

use super::support::model::{tiny, write_run};
use super::support::{AssertText, Sandbox};

const GREEDY: &str = "--prompt abc --temperature 0 --max-new-tokens 9 --json";

/// A run `run` of a GPT-2 with the activation that its files stand for.
pub fn sandbox() -> Sandbox {
    let sandbox = Sandbox::with_text("hello small world\n".repeat(20), "byte");
    let spec = sandbox.spec("data");
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
    let made: Value = sandbox.json(&format!("generate {model} {GREEDY}"));
    made["tokens"].clone()
}

#[test]
fn an_exported_file_gives_the_models_answers() {
    let sandbox = sandbox();
    let printed = sandbox.ok("export run --format gguf --type f32 --out m.gguf");
    assert!(
        printed.starts_with("m.gguf: ") && printed.ends_with("of f32\n"),
        "{printed}"
    );
    let info: Value = sandbox.json("info m.gguf --json");
    assert_eq!(info["about"], "a GGUF file of type gpt2, stored in F32");
    assert_eq!(tokens(&sandbox, "m.gguf"), tokens(&sandbox, "run"));
    // A file of a file is the same.
    sandbox.ok("export m.gguf --format gguf --type f32 --out again.gguf");
    let read = |name: &str| sandbox.bytes(name);
    assert!(read("m.gguf") == read("again.gguf"));
}

#[test]
fn files_are_replaced_only_with_force_and_options_that_do_not_fit_are_refused() {
    let sandbox = sandbox();
    sandbox.write("m.gguf", "before");
    sandbox.write("text.txt", "the cat sat on the mat. ".repeat(40));
    sandbox.write("short.txt", "cat");
    // An importance matrix of llama.cpp, in its old form.
    sandbox.write(
        "imatrix.dat",
        b"\x01\0\0\0\x13\0\0\0blk.0.attn_q.weight\x05\0\0\0\x01\0\0\0\0\0\xc0\x7f",
    );
    sandbox.check_messages("gguf");
    sandbox.ok("export run --format gguf --type q8_0 --out m.gguf --force");
    tokens(&sandbox, "m.gguf");
}

#[test]
fn calibration_changes_the_rounding_of_matrices() {
    let sandbox = sandbox();
    sandbox.write("text.txt", "the cat sat on the mat. ".repeat(40));
    let line = "export run --format gguf --type q4_0 --out";
    sandbox.ok(&format!("{line} plain.gguf"));
    sandbox.ok(&format!("{line} calibrated.gguf --calibration text.txt"));
    let read = |name: &str| sandbox.bytes(name);
    assert!(read("plain.gguf") != read("calibrated.gguf"));
    sandbox.ok(&format!(
        "{line} gptq.gguf --calibration text.txt --method gptq"
    ));
    assert!(read("gptq.gguf") != read("calibrated.gguf"));
    assert_eq!(read("gptq.gguf").len(), read("calibrated.gguf").len());
}

#[test]
fn models_without_an_architecture_are_refused() {
    Sandbox::new().check_messages("gguf_architectures");
}

#[test]
fn a_packed_file_is_exported_without_options() {
    let sandbox = sandbox();
    sandbox.ok("export run --format gguf --type Q4_0 --out m.gguf");
    let printed = sandbox.ok("export m.gguf --out whole");
    printed.assert_has(" of f32, unpacked from q4_0, in 1 file");
    let of_f32 = "generate m.gguf --weights f32";
    let expected: Value = sandbox.json(&format!("{of_f32} {GREEDY}"));
    assert_eq!(tokens(&sandbox, "whole"), expected["tokens"]);
}

/// llama.cpp's program refuses without `--allow-requantize`.
#[test]
fn a_packed_file_that_is_rounded_again_causes_a_warning() {
    sandbox().check_messages("gguf_rounded_again");
}

#[test]
fn packed_weights_are_not_packed_again_into_a_larger_format() {
    let sandbox = sandbox();
    sandbox.ok("export run --format gguf --type q4_0 --out m.gguf");
    let stored = tokens(&sandbox, "m.gguf");
    let ran = sandbox.succeeds(&format!("generate m.gguf --weights int8 {GREEDY}"));
    let warning = "warning: --weights int8: the weights stay in q4_0, as they are stored in m.gguf: 8.0 bits per weight \
        would be no smaller than 4.5, and less exact\n";
    assert_eq!(ran.stderr, warning);
    let made: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(made["tokens"], stored);
    // Fewer bits, and the same format.
    sandbox.ok("export run --format gguf --type q8_0 --out wide.gguf");
    for weights in ["q4_0", "q8_0", "int8", "f32"] {
        sandbox.ok(&format!("generate wide.gguf --weights {weights} {GREEDY}"));
    }
}

#[test]
fn file_types_have_the_names_of_llama_cpp() {
    let sandbox = sandbox();
    // Rows of 32 elements: the matrices have other types than q4_k.
    sandbox.ok("export run --format gguf --type q4_k_m --out m.gguf");
    let speeds: Value = sandbox.json("bench m.gguf --prompt 4 --decode 0 --repeat 1 --json");
    assert_eq!(speeds[0]["weights"], "q4_k_m");
    let info: Value = sandbox.json("info m.gguf --json");
    assert_eq!(info["file_type"], "q4_k_m");
    assert_eq!(info["about"], "a GGUF file of type gpt2, stored in Q4_K_M");
    assert_eq!(info["chat_template"], Value::Null);
    assert_eq!(info["end_tokens"][0]["text"], "<|endoftext|>");
    let text = sandbox.ok("info m.gguf");
    let (_, texts) = text.split_once("\nTexts\n").expect("a section");
    for line in [
        "  file type      q4_k_m (tensors: ",
        "  end tokens     <|endoftext|> (256)\n",
        "  chat template  none\n",
    ] {
        texts.assert_has(line);
    }
}
