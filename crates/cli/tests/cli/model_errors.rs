//! Models, tokens and datasets that cannot be used.

use std::fs;

use super::support::model::{tiny, write_run};
use super::support::{Sandbox, fixtures};

#[test]
fn models_tokens_and_datasets_that_cannot_be_used() {
    let sandbox = Sandbox::with_char_model();
    sandbox.write("hf/config.json", "{}");
    sandbox.write("hf/model.safetensors", "");
    sandbox.write("other/notes.md", "");
    sandbox.write("fresh/checkpoints/.step-00000001.partial/model.json", "");
    sandbox.write("m.gguf", "GGUF");
    sandbox.write("quantized/m-Q4_K.gguf", "GGUF");
    sandbox.write("ckpt.pt", "pickle");
    let config = fs::read(fixtures().join("families/gpt2-tied/config.json")).unwrap();
    sandbox.write("pickled/config.json", &config);
    sandbox.write("pickled/pytorch_model.bin", "pickle");
    sandbox.write("weightless/config.json", &config);
    write_run(&sandbox.path("mute"), &tiny(11), None, &[1]);
    write_run(&sandbox.path("small"), &tiny(5), None, &[1]);
    write_run(&sandbox.path("damaged"), &tiny(11), None, &[1]);
    let weights = "damaged/checkpoints/step-00000001/model.safetensors";
    let mut bytes = sandbox.bytes(weights);
    *bytes.last_mut().unwrap() ^= 1;
    sandbox.write(weights, bytes);
    sandbox.ok("prepare text.txt --out bytes --tokenizer byte");
    sandbox.ok("prepare text.txt --out all --tokenizer char --val-fraction 0");
    sandbox.check_messages("models");
    // As many as the context has room for.
    sandbox.ok("generate run --tokens 1,1,1,1,1,1,1,1 --json");
}
