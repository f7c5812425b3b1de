//! Hugging Face directories as MODEL and as the output of `export`; `new`, and training from a model.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use emberlm_data::Dataset;
use emberlm_tokenizer::{Tokenizer, TokenizerKind};
use safetensors::SafeTensors;
use serde_json::Value;

use super::support::tensors::{floats, ids};
use super::support::{AssertText, Sandbox, fixtures};

fn fixture(name: &str) -> PathBuf {
    fixtures().join("families").join(name)
}

fn expected(name: &str) -> Vec<u8> {
    fs::read(fixture(name).join("expected.safetensors")).unwrap()
}

fn joined(ids: &[i64]) -> String {
    ids.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
}

/// Type, shape and bytes of every tensor in a folder's safetensors files, except the fixtures' additions.
fn tensors(folder: &Path) -> BTreeMap<String, (String, Vec<u8>)> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.ends_with(".safetensors") || name == "expected.safetensors" {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        for (name, view) in SafeTensors::deserialize(&bytes).unwrap().iter() {
            let kind = format!("{:?} {:?}", view.dtype(), view.shape());
            all.insert(name.to_owned(), (kind, view.data().to_vec()));
        }
    }
    all
}

#[test]
fn greedy_continuations_match_transformers() {
    let sandbox = Sandbox::new();
    for name in [
        "gpt2-hub",
        "gptj-whole",
        "gpt_neox-hub",
        "llama-bias",
        "mistral-window",
        "qwen2-mixed",
    ] {
        let file = expected(name);
        let (prompt, greedy) = (ids(&file, "prompt"), ids(&file, "greedy"));
        let model = fixture(name);
        let prompt = joined(&prompt);
        let args = ["generate", model.to_str().unwrap(), "--tokens", &prompt];
        let made = sandbox
            .run(
                args.into_iter()
                    .chain(["--temperature", "0", "--max-new-tokens", "32", "--json"]),
            )
            .json::<Value>();
        let made: Vec<i64> = serde_json::from_value(made["tokens"].clone()).unwrap();
        // An end-of-text token ends the text here; `transformers` was configured to continue.
        assert!(
            !made.is_empty() && greedy.starts_with(&made),
            "{name}: {made:?}, not {greedy:?}"
        );
    }
}

#[test]
fn logits_match_transformers() {
    let sandbox = Sandbox::new();
    let name = "qwen3-tied";
    let file = expected(name);
    let logits = floats(&file, "logits");
    let (batch, tokens) = (2, ids(&file, "input"));
    let first = &tokens[..tokens.len() / batch];
    let model = fixture(name);
    let tokens = joined(first);
    let args = [
        "logits",
        model.to_str().unwrap(),
        "--tokens",
        &tokens,
        "--out",
        "l.safetensors",
    ];
    sandbox.run(args).ok();
    let found = floats(&sandbox.bytes("l.safetensors"), "logits");
    let norm = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>().sqrt();
    let first = &logits[..found.len()];
    let error = norm(&mut found.iter().zip(first).map(|(a, b)| a - b));
    assert!(error <= 1e-5 * norm(&mut first.iter().copied()), "{error}");
}

#[test]
fn an_exported_model_has_the_same_bytes() {
    let sandbox = Sandbox::new();
    for name in ["llama-bias", "gpt2-untied", "gpt_neox-nobias"] {
        let model = fixture(name);
        let args = [
            "export",
            model.to_str().unwrap(),
            "--out",
            name,
            "--shard-size",
            "10KB",
        ];
        let printed = sandbox.run(args).ok();
        assert!(printed.starts_with(&format!("{name}: ")), "{printed}");
        let files = fs::read_dir(sandbox.path(name)).unwrap().count();
        assert!(
            files > 3,
            "{files} files: shards, their index and the configuration"
        );
        assert_eq!(tensors(&sandbox.path(name)), tensors(&model), "{name}");
        sandbox.ok(&format!("generate {name} --tokens 1,2 --max-new-tokens 2"));
    }
}

#[test]
fn an_export_can_change_the_type() {
    let sandbox = Sandbox::new();
    let model = fixture("llama-gqa");
    let model = model.to_str().unwrap();
    sandbox
        .run(["export", model, "--out", "half", "--dtype", "bf16"])
        .ok();
    let info: Value = sandbox.json("info half --json");
    assert_eq!(
        info["about"],
        "a Hugging Face model of type llama, stored in bf16"
    );
    let config: Value = sandbox.value("half/config.json");
    assert_eq!(config["dtype"], "bfloat16");
    sandbox.check_messages("export_there");
    sandbox
        .run(["export", model, "--out", "half", "--force"])
        .ok();
    assert_eq!(tensors(&sandbox.path("half")), tensors(Path::new(model)));
    assert_eq!(sandbox.names(), ["half"], "nothing else is left");
}

#[test]
fn a_trained_model_is_exported_with_its_tokenizer() {
    let sandbox = Sandbox::with_char_model();
    sandbox.ok("export run --out hf");
    let mut names: Vec<_> = fs::read_dir(sandbox.path("hf"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let all = [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    assert_eq!(names, all);
    // char-nano has no biases, but the Hugging Face type requires them, so the export writes zeros.
    let greedy = "--prompt hello --temperature 0 --max-new-tokens 6 --json";
    let one: Value = sandbox.json(&format!("generate run {greedy}"));
    let two: Value = sandbox.json(&format!("generate hf {greedy}"));
    assert_eq!(one, two);
    let losses = ["run", "hf"].map(|model| {
        let report: Value = sandbox.json(&format!("eval {model} --data data --json"));
        report["loss"].as_f64().unwrap()
    });
    assert!((losses[0] / losses[1] - 1.0).abs() < 1e-6, "{losses:?}");
}

#[test]
fn models_without_a_hugging_face_type_are_rejected() {
    let sandbox = Sandbox::new();
    sandbox.ok("new --preset pocket-tales --vocab-size 20 --out pocket");
    let small = "--vocab-size 20 --set model.d_model=8 --set model.n_layers=1 --set model.heads=2 --set model.seq_len=8";
    sandbox.ok(&format!(
        "new --preset char-nano {small} --set model.kv_heads=1 --out grouped"
    ));
    sandbox.check_messages("export_types");
}

#[test]
fn training_warns_of_a_model_that_cannot_be_exported() {
    let sandbox = Sandbox::with_data();
    let run = |settings: &str, out: &str| {
        let ran = sandbox.succeeds(&format!(
            "train --preset char-nano --data data --steps 1 --set model.n_layers=1 {settings} \
             --renderer plain --out {out}"
        ));
        ran.stderr
    };
    let warning = "warning: this model cannot be exported as a Hugging Face directory: `transformers`' type `gpt2` \
        cannot express model.kv_heads = 2";
    let grouped = run("--set model.kv_heads=2", "grouped");
    grouped.assert_has(warning);
    // Grouped-query attention with one key-value head per query head.
    let whole = run("--set model.heads=8", "whole");
    whole.assert_lacks("warning");
    sandbox.ok("export whole --out hf");
}

#[test]
fn a_new_model_is_a_function_of_its_seed() {
    let sandbox = Sandbox::new();
    let small = "--preset gpt2-small --vocab-size 64 --set model.d_model=8 --set model.n_layers=1 --set model.heads=2 \
        --set model.kv_heads=2 --set model.seq_len=8";
    for (out, seed) in [("a", 1), ("b", 1), ("c", 2)] {
        let printed = sandbox.ok(&format!("new {small} --seed {seed} --out {out}"));
        assert_eq!(printed, format!("{out}: 1,464 parameters\n"));
    }
    let [a, b, c] = ["a", "b", "c"].map(|name| tensors(&sandbox.path(name)));
    assert_eq!(a, b);
    assert_ne!(a, c);
    let info: Value = sandbox.json("info a --json");
    assert_eq!(info["about"], "a model that has not been trained");
    assert_eq!(info["config"]["vocab_size"], 64);
}

/// A byte dataset and a Hugging Face model with its vocabulary.
fn with_byte_model() -> Sandbox {
    let sandbox = Sandbox::with_text("hello small world\n".repeat(40), "byte");
    let small = "--vocab-size 320 --set model.d_model=16 --set model.n_layers=2 --set model.heads=2 --set model.kv_heads=1 \
        --set model.feed_forward.width=32 --set model.seq_len=64";
    sandbox.ok(&format!("new --preset tinyllama-1.1b {small} --out own"));
    sandbox.ok("export own --out hf");
    sandbox
}

const QUICK: &str = "--steps 3 --set train.accumulation=2 --set train.seq_len=16 --set train.evaluation.tokens=64 \
    --set train.evaluation.sample_tokens=4 --renderer plain";

#[test]
fn training_starts_from_a_hugging_face_model() {
    let sandbox = with_byte_model();
    // The exported model has no tokenizer, so it accepts any dataset's ids.
    sandbox.succeeds(&format!("train --from hf --data data --out run {QUICK}"));
    let before: Value = sandbox.json("eval own --data data --json");
    let after: Value = sandbox.json("eval run --data data --json");
    let [before, after] = [before, after].map(|report| report["loss"].as_f64().unwrap());
    assert!(
        after < before && after > 0.5 * before,
        "{before} before, {after} after"
    );
    let config = sandbox.text("run/config.toml");
    // Training uses short sequences, but the model keeps its context length.
    config.assert_has("from = \"hf\"");
    config.assert_has("\nseq_len = 16\n");
    config.assert_has("\nseq_len = 64\n");
    // Then from the resulting run, without `--out`: the new run is named after the model.
    sandbox.succeeds(&format!("train --from run --data data {QUICK}"));
    assert!(sandbox.path("runs/run-001/checkpoints").exists());
}

#[test]
fn settings_and_data_that_do_not_fit_a_model_are_rejected() {
    let sandbox = with_byte_model();
    let gpt2 = Tokenizer::builtin(TokenizerKind::Gpt2).unwrap();
    sandbox.ok("export own --out words");
    sandbox.write("words/tokenizer.json", gpt2.to_tokenizer_json());
    let config = fs::read_to_string(fixture("gpt2-tied").join("config.json")).unwrap();
    sandbox.write("mish/config.json", config.replace("gelu_new", "mish"));
    let headless = config.replace("\"n_head\": 4", "\"n_head\": 0");
    sandbox.write("headless/config.json", headless);
    sandbox.check_messages("hugging_face");
}

#[test]
fn a_vocabulary_from_a_file_equals_the_built_in_one() {
    let sandbox = with_byte_model();
    let gpt2 = Tokenizer::builtin(TokenizerKind::Gpt2).unwrap();
    sandbox.write("hf/tokenizer.json", gpt2.to_tokenizer_json());
    // The same vocabulary from a file and built in counts as equal.
    sandbox.ok("prepare text.txt --out words --tokenizer gpt2");
    assert_eq!(
        Dataset::open(sandbox.path("words"))
            .unwrap()
            .tokenizer()
            .vocab_size(),
        50_257
    );
    let ran = sandbox.words("eval hf --data words");
    ran.says("50257 token ids");
    ran.says("320");
}

#[test]
fn windows_are_at_most_the_context() {
    let sandbox = with_byte_model();
    let losses = ["--seq-len 8", "--seq-len 64", ""].map(|option| {
        let line = format!("eval own --data data --json {option}");
        let report: Value = sandbox.json(&line);
        assert!(report["tokens"].as_u64().unwrap() > 8);
        report["loss"].as_f64().unwrap()
    });
    assert_eq!(losses[1], losses[2], "the context is 64");
    assert_ne!(losses[0], losses[1]);
}
