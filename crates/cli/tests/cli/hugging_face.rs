//! Hugging Face directories as MODEL and as the output of `export`; `new`, and training from a model.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use emberlm_data::Dataset;
use emberlm_tokenizer::{Tokenizer, TokenizerKind};
use safetensors::SafeTensors;
use serde_json::Value;

use super::support::Sandbox;

fn fixture(name: &str) -> PathBuf {
    let families = "../model/tests/fixtures/families";
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(families)
        .join(name)
}

fn expected(name: &str) -> Vec<u8> {
    fs::read(fixture(name).join("expected.safetensors")).unwrap()
}

fn ids(file: &[u8], tensor: &str) -> Vec<i64> {
    let tensors = SafeTensors::deserialize(file).unwrap();
    let view = tensors.tensor(tensor).unwrap();
    let (chunks, _) = view.data().as_chunks::<8>();
    chunks
        .iter()
        .map(|&bytes| i64::from_le_bytes(bytes))
        .collect()
}

fn floats(file: &[u8], tensor: &str) -> Vec<f32> {
    let tensors = SafeTensors::deserialize(file).unwrap();
    let view = tensors.tensor(tensor).unwrap();
    let (chunks, _) = view.data().as_chunks::<4>();
    chunks
        .iter()
        .map(|&bytes| f32::from_le_bytes(bytes))
        .collect()
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
    let found = floats(&fs::read(sandbox.path("l.safetensors")).unwrap(), "logits");
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
        sandbox
            .words(&format!("generate {name} --tokens 1,2 --max-new-tokens 2"))
            .ok();
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
    let info: Value = sandbox.words("info half --json").json();
    assert_eq!(
        info["about"],
        "a Hugging Face model of type llama, stored in bf16"
    );
    let config: Value =
        serde_json::from_slice(&fs::read(sandbox.path("half/config.json")).unwrap()).unwrap();
    assert_eq!(config["dtype"], "bfloat16");
    let refused = sandbox.run(["export", model, "--out", "half"]);
    insta::assert_snapshot!(refused, @r"
    exit 1
    --- stderr
    error: half is there already
    hint: choose another --out, or replace it with --force
    ");
    sandbox
        .run(["export", model, "--out", "half", "--force"])
        .ok();
    assert_eq!(tensors(&sandbox.path("half")), tensors(Path::new(model)));
    assert_eq!(sandbox.names(), ["half"], "nothing else is left");
}

#[test]
fn a_trained_model_is_exported_with_its_tokenizer() {
    let sandbox = Sandbox::with_char_model();
    sandbox.words("export run --out hf").ok();
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
    let one: Value = sandbox.words(&format!("generate run {greedy}")).json();
    let two: Value = sandbox.words(&format!("generate hf {greedy}")).json();
    assert_eq!(one, two);
    let losses = ["run", "hf"].map(|model| {
        let report: Value = sandbox
            .words(&format!("eval {model} --data data --json"))
            .json();
        report["loss"].as_f64().unwrap()
    });
    assert!((losses[0] / losses[1] - 1.0).abs() < 1e-6, "{losses:?}");
}

#[test]
fn models_without_a_hugging_face_type_are_rejected() {
    let sandbox = Sandbox::new();
    sandbox
        .words("new --preset pocket-tales --vocab-size 20 --out pocket")
        .ok();
    insta::assert_snapshot!(sandbox.words("export pocket --out hf"), @r"
    exit 1
    --- stderr
    error: `transformers` has no type for the family `pocket`
    hint: it has types for gpt2, gptj, gpt_neox, llama, mistral, mixtral, qwen2, qwen2_moe, qwen3, qwen3_moe, olmoe, gemma2, olmo2, olmo3, smollm3, phi3, granite, gemma3_text, starcoder2, cohere, glm4, bloom, falcon; this model's own checkpoint is a safetensors file already
    ");
    let small = "--vocab-size 20 --set model.d_model=8 --set model.n_layers=1 --set model.heads=2 --set model.seq_len=8";
    sandbox
        .words(&format!(
            "new --preset char-nano {small} --set model.kv_heads=1 --out grouped"
        ))
        .ok();
    insta::assert_snapshot!(sandbox.words("export grouped --out hf"), @r"
    exit 1
    --- stderr
    error: `transformers`' type `gpt2` cannot express model.kv_heads = 1
    ");
    assert_eq!(
        sandbox.names(),
        ["grouped", "pocket"],
        "nothing is left of what failed"
    );
}

#[test]
fn training_warns_of_a_model_that_cannot_be_exported() {
    let sandbox = Sandbox::with_data();
    let run = |settings: &str, out: &str| {
        let ran = sandbox.words(&format!(
            "train --preset char-nano --data data --steps 1 --set model.n_layers=1 {settings} \
             --renderer plain --out {out}"
        ));
        assert_eq!(ran.code, Some(0), "{ran}");
        ran.stderr
    };
    let warning = "warning: this model cannot be exported as a Hugging Face directory: `transformers`' type `gpt2` \
        cannot express model.kv_heads = 2";
    let grouped = run("--set model.kv_heads=2", "grouped");
    assert!(grouped.contains(warning), "{grouped}");
    // Grouped-query attention with one key-value head per query head.
    let whole = run("--set model.heads=8", "whole");
    assert!(!whole.contains("warning"), "{whole}");
    sandbox.words("export whole --out hf").ok();
}

#[test]
fn a_new_model_is_a_function_of_its_seed() {
    let sandbox = Sandbox::new();
    let small = "--preset gpt2-small --vocab-size 64 --set model.d_model=8 --set model.n_layers=1 --set model.heads=2 \
        --set model.kv_heads=2 --set model.seq_len=8";
    for (out, seed) in [("a", 1), ("b", 1), ("c", 2)] {
        let printed = sandbox
            .words(&format!("new {small} --seed {seed} --out {out}"))
            .ok();
        assert_eq!(printed, format!("{out}: 1,464 parameters\n"));
    }
    let [a, b, c] = ["a", "b", "c"].map(|name| tensors(&sandbox.path(name)));
    assert_eq!(a, b);
    assert_ne!(a, c);
    let info: Value = sandbox.words("info a --json").json();
    assert_eq!(info["about"], "a model that has not been trained");
    assert_eq!(info["config"]["vocab_size"], 64);
    insta::assert_snapshot!(sandbox.words("new --preset char-nano --out d"), @r"
    exit 2
    --- stderr
    error: the preset `char-nano` takes its vocabulary from a dataset
    hint: set the vocabulary size with --vocab-size N or --tokenizer PATH
    ");
    insta::assert_snapshot!(sandbox.words("new --preset gpt9 --out d").stderr.lines().next().unwrap(), @r"error: unknown preset `gpt9`");
}

/// A byte dataset and a Hugging Face model with its vocabulary.
fn with_byte_model() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("text.txt", "hello small world\n".repeat(40));
    sandbox
        .words("prepare text.txt --out data --tokenizer byte")
        .ok();
    let small = "--vocab-size 320 --set model.d_model=16 --set model.n_layers=2 --set model.heads=2 --set model.kv_heads=1 \
        --set model.feed_forward.width=32 --set model.seq_len=64";
    sandbox
        .words(&format!("new --preset tinyllama-1.1b {small} --out own"))
        .ok();
    sandbox.words("export own --out hf").ok();
    sandbox
}

const QUICK: &str = "--steps 3 --set train.accumulation=2 --set train.seq_len=16 --set train.evaluation.tokens=64 \
    --set train.evaluation.sample_tokens=4 --renderer plain";

#[test]
fn training_starts_from_a_hugging_face_model() {
    let sandbox = with_byte_model();
    // The exported model has no tokenizer, so it accepts any dataset's ids.
    let ran = sandbox.words(&format!("train --from hf --data data --out run {QUICK}"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let before: Value = sandbox.words("eval own --data data --json").json();
    let after: Value = sandbox.words("eval run --data data --json").json();
    let [before, after] = [before, after].map(|report| report["loss"].as_f64().unwrap());
    assert!(
        after < before && after > 0.5 * before,
        "{before} before, {after} after"
    );
    let config = fs::read_to_string(sandbox.path("run/config.toml")).unwrap();
    // Training uses short sequences, but the model keeps its context length.
    assert!(
        config.contains("from = \"hf\"") && config.contains("\nseq_len = 16\n"),
        "{config}"
    );
    assert!(config.contains("\nseq_len = 64\n"), "{config}");
    // Then from the resulting run, without `--out`: the new run is named after the model.
    let ran = sandbox.words(&format!("train --from run --data data {QUICK}"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(sandbox.path("runs/run-001/checkpoints").exists());
}

#[test]
fn settings_fixed_by_the_weights_are_rejected() {
    let sandbox = with_byte_model();
    let ran = sandbox.words(&format!(
        "train --from hf --data data --out run {QUICK} --set model.d_model=32"
    ));
    insta::assert_snapshot!(ran, @r"
    exit 1
    --- stderr
    error: model.d_model = 32: must be 16, as in the weights
    ");
    assert!(!sandbox.path("run").exists());
    insta::assert_snapshot!(sandbox.words("train --from hf --preset pocket --data data").code.unwrap(), @"2");
}

#[test]
fn a_dataset_of_another_tokenizer_is_refused() {
    let sandbox = with_byte_model();
    let gpt2 = Tokenizer::builtin(TokenizerKind::Gpt2).unwrap();
    sandbox.write("hf/tokenizer.json", gpt2.to_tokenizer_json());
    insta::assert_snapshot!(sandbox.words("train --from hf --data data --out run"), @r"
    exit 1
    --- stderr
    error: data was made with another tokenizer than the model's: byte (257 ids, 26f1e0d0…) there, tokenizer.json (50,257 ids, e2355d93…) in hf
    hint: prepare the text again with --tokenizer hf
    ");
    // The same vocabulary from a file and built in counts as equal.
    sandbox
        .words("prepare text.txt --out words --tokenizer gpt2")
        .ok();
    assert_eq!(
        Dataset::open(&sandbox.path("words"))
            .unwrap()
            .tokenizer()
            .vocab_size(),
        50_257
    );
    let ran = sandbox.words("eval hf --data words");
    assert!(
        ran.stderr.contains("50257 token ids") && ran.stderr.contains("320"),
        "{}",
        ran.stderr
    );
}

#[test]
fn pickles_are_rejected_with_a_reason() {
    let sandbox = Sandbox::new();
    sandbox.write("ckpt.pt", "pickle");
    insta::assert_snapshot!(sandbox.words("generate ckpt.pt --tokens 1"), @r"
    exit 1
    --- stderr
    error: ckpt.pt is a file, not a model's directory
    hint: a PyTorch pickle can run any program when it is opened, so none is read
    hint: save it as safetensors where you trust it: in Python, AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(OUT)
    ");
    let config = fs::read(fixture("gpt2-tied").join("config.json")).unwrap();
    sandbox.write("hf/config.json", config);
    sandbox.write("hf/pytorch_model.bin", "pickle");
    insta::assert_snapshot!(sandbox.words("generate hf --tokens 1"), @r"
    exit 1
    --- stderr
    error: hf/pytorch_model.bin is a PyTorch pickle, which can run any program when it is opened: it is not read
    hint: save it as safetensors where you trust it: in Python, AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(OUT)
    ");
    fs::remove_file(sandbox.path("hf/pytorch_model.bin")).unwrap();
    insta::assert_snapshot!(sandbox.words("generate hf --tokens 1"), @r"
    exit 1
    --- stderr
    error: hf has no model.safetensors and no model.safetensors.index.json
    ");
}

#[test]
fn unsupported_config_settings_are_rejected() {
    let sandbox = Sandbox::new();
    let text = fs::read_to_string(fixture("gpt2-tied").join("config.json")).unwrap();
    sandbox.write("hf/config.json", text.replace("gelu_new", "mish"));
    insta::assert_snapshot!(sandbox.words("info hf"), @r#"
    exit 1
    --- stderr
    error: config.json: `activation_function` = "mish": must be one of gelu, gelu_python, gelu_new, gelu_pytorch_tanh, gelu_python_tanh, gelu_fast, gelu_accurate, relu, relu2, silu, swish
    "#);
    sandbox.write(
        "hf/config.json",
        text.replace("\"n_head\": 4", "\"n_head\": 0"),
    );
    insta::assert_snapshot!(sandbox.words("info hf"), @r"
    exit 1
    --- stderr
    error: config.json: `n_head` = 0: must be a whole number between 1 and 16777216
    ");
}

#[test]
fn windows_are_at_most_the_context() {
    let sandbox = with_byte_model();
    let losses = ["--seq-len 8", "--seq-len 64", ""].map(|option| {
        let line = format!("eval own --data data --json {option}");
        let report: Value = sandbox.words(&line).json();
        assert!(report["tokens"].as_u64().unwrap() > 8);
        report["loss"].as_f64().unwrap()
    });
    assert_eq!(losses[1], losses[2], "the context is 64");
    assert_ne!(losses[0], losses[1]);
    insta::assert_snapshot!(sandbox.words("eval own --data data --seq-len 65"), @r"
    exit 2
    --- stderr
    error: --seq-len 65: the model's context is 64
    ");
    let ran = sandbox.words("train --from own --data data --out run --set train.seq_len=65");
    insta::assert_snapshot!(ran, @r"
    exit 1
    --- stderr
    error: train.seq_len = 65: must be at most the model's context of 64
    ");
}
