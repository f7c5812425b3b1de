//! Adapters: training, resuming, PEFT's files, merging, and bad input.

use std::fs;

use serde_json::{Value, json};

use super::fine_tuning::with_base;
use super::support::Sandbox;
use super::support::train::trained;

const TRAIN: &str = "train --from base --data talks --learning-rate 3e-2 --renderer plain \
    --set train.micro_batch=2 --set train.accumulation=1 --set train.checkpoints.interval=20 --seed 3";

/// The validation loss of a model with options.
fn loss(sandbox: &Sandbox, model: &str) -> f64 {
    let ran = sandbox.words(&format!("eval {model} --data talks --json"));
    let read: Value = ran.json();
    read["loss"].as_f64().unwrap()
}

fn size(sandbox: &Sandbox, file: &str) -> u64 {
    fs::metadata(sandbox.path(file)).unwrap().len()
}

#[test]
fn an_adapter_is_trained_resumed_exported_and_merged() {
    let sandbox = with_base();
    let base = fs::read(sandbox.path("base/model.safetensors")).unwrap();
    let options = "--adapter lora --set train.adapter.rank=2 --set train.adapter.dropout=0.1";
    let line = format!("{TRAIN} {options} --set train.adapter.targets=[\"all-linear\"]");
    trained(sandbox.words(&format!("{line} --steps 30 --out whole")));
    let weights = "checkpoints/step-00000030/model.safetensors";
    let whole = size(&sandbox, &format!("whole/{weights}"));
    assert!(whole < base.len() as u64 / 2, "{whole} bytes");
    assert_eq!(
        fs::read(sandbox.path("base/model.safetensors")).unwrap(),
        base
    );

    // Resuming repeats the last ten steps to the bit.
    let last = sandbox.path("whole/checkpoints/step-00000030");
    let read = |name: &str| fs::read(last.join(name)).unwrap();
    let expected = ["model.safetensors", "optimizer.safetensors", "state.json"].map(read);
    fs::remove_dir_all(&last).unwrap();
    trained(sandbox.words("train --resume whole --renderer plain"));
    let found = ["model.safetensors", "optimizer.safetensors", "state.json"].map(read);
    assert!(found == expected, "the resumed run differs");

    let trained = loss(&sandbox, "whole");
    assert!(
        trained < loss(&sandbox, "base") - 0.05,
        "the adapter has learnt"
    );
    sandbox.words("export whole --out peft").ok();
    let config: Value =
        serde_json::from_slice(&fs::read(sandbox.path("peft/adapter_config.json")).unwrap())
            .unwrap();
    assert_eq!(config["r"], json!(2));
    let all = [
        "down_proj",
        "gate_proj",
        "k_proj",
        "o_proj",
        "q_proj",
        "up_proj",
        "v_proj",
    ];
    assert_eq!(config["target_modules"], json!(all));
    for model in ["base --adapter peft", "base --adapter whole", "peft"] {
        assert_eq!(loss(&sandbox, model), trained, "{model}");
    }
    for line in [
        "merge whole --out merged",
        "merge base --adapter peft --out merged --force",
    ] {
        sandbox.words(line).ok();
        let merged = loss(&sandbox, "merged");
        assert!(
            (merged / trained - 1.0).abs() < 1e-5,
            "{line}: {merged}, not {trained}"
        );
    }
}

#[test]
fn a_module_is_trained_and_saved_whole_with_the_adapter() {
    let sandbox = with_base();
    let saved = "--adapter lora --set train.adapter.modules_to_save=[\"embed_tokens\"]";
    trained(sandbox.words(&format!("{TRAIN} {saved} --steps 20 --out run")));
    trained(sandbox.words(&format!("{TRAIN} --adapter lora --steps 20 --out without")));
    let trained = loss(&sandbox, "run");
    assert!(
        trained < loss(&sandbox, "without"),
        "the embedding has learnt"
    );
    sandbox.words("export run --out peft").ok();
    let text = fs::read_to_string(sandbox.path("peft/adapter_config.json")).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    // The head is tied to the embedding.
    assert_eq!(
        config["modules_to_save"],
        json!(["embed_tokens", "lm_head"])
    );
    assert_eq!(config["ensure_weight_tying"], json!(true));
    for model in ["base --adapter peft", "base --adapter run", "peft"] {
        assert_eq!(loss(&sandbox, model), trained, "{model}");
    }
    sandbox.words("merge run --out merged").ok();
    let merged = loss(&sandbox, "merged");
    assert!(
        (merged / trained - 1.0).abs() < 1e-5,
        "{merged}, not {trained}"
    );
}

#[test]
fn the_base_model_may_be_quantized() {
    let sandbox = with_base();
    let options = "--adapter dora --set train.adapter.base_weights=int8";
    trained(sandbox.words(&format!("{TRAIN} {options} --steps 30 --out run")));
    let trained = loss(&sandbox, "run");
    assert!(trained < loss(&sandbox, "base --weights int8") - 0.01);
    let text = sandbox
        .words("generate run --prompt Hello --max-tokens 4")
        .ok();
    assert!(text.starts_with("Hello"), "{text}");
}

#[test]
fn adapters_that_do_not_fit_are_refused() {
    let sandbox = with_base();
    trained(sandbox.words(&format!("{TRAIN} --adapter lora --steps 1 --out run")));
    sandbox.words("export run --out peft").ok();
    sandbox
        .words("new --preset llama-3.2-1b --vocab-size 259 --set model.d_model=32 --set model.n_layers=1 \
            --set model.heads=2 --set model.kv_heads=2 --set model.head_dim=16 --set model.feed_forward.width=32 \
            --set model.seq_len=96 --out other")
        .ok();
    for (line, message) in [
        ("generate other --adapter run --prompt a", "was trained on"),
        ("generate other --adapter peft --tokens 1", "has shape"),
        (
            "generate base --adapter talks --prompt a",
            "holds no adapter",
        ),
        ("merge base --out merged", "has no adapter to merge"),
        (
            "export run --dtype f16 --out half",
            "--dtype is an option of whole models",
        ),
    ] {
        let ran = sandbox.words(line);
        assert!(ran.stderr.contains(message), "{line}: {ran}");
        assert_ne!(ran.code, Some(0), "{line}");
    }
    for (setting, message) in [
        ("rank=0", "adapter.rank = 0: must be at least 1"),
        ("alpha=-1.0", "adapter.alpha = -1: must be above 0"),
        ("targets=[\"q_prj\"]", "`q_prj` matches no linear layer"),
        (
            "modules_to_save=[\"lm_haed\"]",
            "`lm_haed`, which matches no module",
        ),
        (
            "modules_to_save=[\"q_proj\"]",
            "all of these must be selected, or none",
        ),
        (
            "base_weights=\"int3\"",
            "must be empty, f32 or a packed format",
        ),
    ] {
        let ran = sandbox.words(&format!(
            "{TRAIN} --set train.adapter.{setting} --out refused"
        ));
        assert!(ran.stderr.contains(message), "{setting}: {ran}");
    }
    let ran = sandbox.words("train --from run --data talks --out refused");
    assert!(ran.stderr.contains("has an adapter already"), "{ran}");
    let ran = sandbox.words("train --data talks --adapter lora --out refused");
    assert!(ran.stderr.contains("train.from"), "{ran}");

    // Half of an update: the key of a tensor becomes that of a second `lora_B` of the same length.
    let weights = sandbox.path("peft/adapter_model.safetensors");
    let whole = fs::read(&weights).unwrap();
    let half = String::from_utf8_lossy(&whole)
        .find("q_proj.lora_A")
        .unwrap();
    let mut changed = whole.clone();
    changed[half + "q_proj.lora_".len()] = b'C';
    fs::write(&weights, changed).unwrap();
    let ran = sandbox.words("generate base --adapter peft --prompt a");
    assert!(ran.stderr.contains("lora_A.weight` is missing"), "{ran}");
    fs::write(&weights, whole).unwrap();

    let file = sandbox.path("peft/adapter_config.json");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        text.replace("\"bias\": \"none\"", "\"lora_bias\": true"),
    )
    .unwrap();
    let ran = sandbox.words("generate base --adapter peft --prompt a");
    assert!(
        ran.stderr.contains("`lora_bias` = true is not supported"),
        "{ran}"
    );
}

/// An adapter that does not fit its base is refused with PEFT's way of converting it.
#[test]
fn adapters_that_changed_their_base_and_names_with_spaces_have_true_hints() {
    let sandbox = Sandbox::new();
    let fixture = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../model/tests/fixtures/adapters/llama-lora"
    );
    for (name, from) in [
        ("adapter_config.json", ""),
        ("adapter_model.safetensors", ""),
        ("config.json", "base/"),
        ("model.safetensors", "base/"),
    ] {
        let bytes = fs::read(format!("{fixture}/{from}{name}")).unwrap();
        sandbox.write(&format!("an adapter/{from}{name}"), bytes);
    }
    let file = "an adapter/adapter_config.json";
    let text = fs::read_to_string(sandbox.path(file)).unwrap();
    let merge = [
        "merge",
        "an adapter/base",
        "--adapter",
        "an adapter",
        "--out",
        "merged",
    ];
    for (value, hint) in [
        (
            "\"pissa_niter_4\"",
            "path_initial_model_for_weight_conversion",
        ),
        ("\"loftq\"", "the weights that LoftQ quantized"),
    ] {
        let field = format!("\"init_lora_weights\": {value}");
        sandbox.write(file, text.replace("\"init_lora_weights\": true", &field));
        let ran = sandbox.run(merge);
        assert_eq!(ran.code, Some(1), "{ran}");
        assert!(
            ran.stderr
                .contains(&format!("`init_lora_weights` = {value}")),
            "{ran}"
        );
        assert!(ran.stderr.contains(hint), "{ran}");
    }
    let ran = sandbox.run(["generate", "an adapter/base", "--prompt", "a"]);
    assert!(ran.stderr.contains("--tokens 1,2,3"), "{ran}");
    let ran = sandbox.run(["chat", "an adapter/base"]);
    assert!(!ran.stderr.contains("emberlm generate an adapter"), "{ran}");
}

/// The conversations of docs/guides/adapt-smollm2.md.
#[test]
fn the_conversations_of_the_guide_are_prepared() {
    let sandbox = Sandbox::new();
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/conversations.jsonl"
    );
    let options = "--chat-template chatml --tokenizer byte --val-fraction 0.2 --out talks";
    let ran = sandbox.words(&format!("prepare {file} {options}"));
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(ran.stdout.contains("33 documents"), "{ran}");
    assert!(ran.stdout.contains("7 documents"), "{ran}");
}

#[test]
fn adapters_of_one_base_are_served_by_name() {
    let sandbox = with_base();
    trained(sandbox.words(&format!("{TRAIN} --adapter lora --steps 30 --out run")));
    sandbox.words("export run --out peft").ok();
    let server = sandbox.serve("serve base run peft");
    let answer = |model: &str| {
        let body = json!({ "model": model, "prompt": "Hello", "max_tokens": 8, "temperature": 0, "logprobs": 1 });
        let choice = server.post("/v1/completions", &body).json()["choices"][0].clone();
        (
            choice["text"].clone(),
            choice["logprobs"]["token_logprobs"].clone(),
        )
    };
    let (text, logprobs) = answer("run");
    assert_eq!((text.clone(), logprobs.clone()), answer("peft"));
    assert_ne!(logprobs, answer("base").1, "the base has no adapter");
    let generated = sandbox.words("generate run --prompt Hello --max-tokens 8 --temperature 0");
    assert_eq!(generated.ok(), format!("Hello{}\n", text.as_str().unwrap()));
}

#[test]
fn an_adapter_learns_from_rewards_and_is_resumed() {
    let sandbox = with_base();
    let base = fs::read(sandbox.path("base/model.safetensors")).unwrap();
    let line = |i: usize| {
        let question = format!("What is {i}?");
        json!({"prompt": [{"role": "user", "content": question}], "answer": i}).to_string() + "\n"
    };
    sandbox.write("prompts.jsonl", (0..20).map(line).collect::<String>());
    let grpo = "--objective grpo --data prompts.jsonl --adapter lora --set train.adapter.rank=2 \
        --set train.objective.rewards=[{kind=\"regex\",pattern=\"[a-m]\"}] --set train.objective.group=4 \
        --set train.objective.max_new_tokens=8 --set train.objective.beta=0.1 --set train.accumulation=1 \
        --set train.log_interval=1 --set train.checkpoints.interval=4 --learning-rate 1e-2 --renderer plain";
    trained(sandbox.words(&format!("train --from base {grpo} --steps 6 --out whole")));
    let steps = sandbox.events("whole", "step");
    let metric = |step: usize, name: &str| steps[step]["metrics"][name].as_f64().unwrap();
    assert_eq!(steps.len(), 6);
    // A new adapter changes nothing.
    assert!(metric(0, "kl").abs() < 1e-6 && metric(5, "kl") > 0.0);
    assert!((0.0..=1.0).contains(&metric(5, "reward")));
    let samples = sandbox.events("whole", "sample");
    assert!(samples[0]["text"].as_str().unwrap().contains("[reward: "));

    let last = sandbox.path("whole/checkpoints/step-00000006");
    let read = |name: &str| fs::read(last.join(name)).unwrap();
    let expected = ["model.safetensors", "optimizer.safetensors", "state.json"].map(read);
    fs::remove_dir_all(&last).unwrap();
    trained(sandbox.words("train --resume whole --renderer plain"));
    let found = ["model.safetensors", "optimizer.safetensors", "state.json"].map(read);
    assert!(found == expected, "the resumed run differs");
    assert_eq!(
        fs::read(sandbox.path("base/model.safetensors")).unwrap(),
        base
    );
}
