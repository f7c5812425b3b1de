//! Adapters: training, resuming, PEFT's files, merging, and bad input.

use std::fs;

use serde_json::{Value, json};

use super::fine_tuning::with_base;
use super::support::model::write_encoder;
use super::support::{AssertText, Sandbox};

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
    let base = sandbox.bytes("base/model.safetensors");
    let options = "--adapter lora --set train.adapter.rank=2 --set train.adapter.dropout=0.1";
    let line = format!("{TRAIN} {options} --set train.adapter.targets=[\"all-linear\"]");
    sandbox.succeeds(&format!("{line} --steps 30 --out whole"));
    let weights = "checkpoints/step-00000030/model.safetensors";
    let whole = size(&sandbox, &format!("whole/{weights}"));
    assert!(whole < base.len() as u64 / 2, "{whole} bytes");
    assert_eq!(sandbox.bytes("base/model.safetensors"), base);

    // Resuming repeats the last ten steps to the bit.
    let expected = sandbox.checkpoint("whole", 30);
    fs::remove_dir_all(sandbox.path("whole/checkpoints/step-00000030")).unwrap();
    sandbox.succeeds("train --resume whole --renderer plain");
    let found = sandbox.checkpoint("whole", 30);
    assert!(found == expected, "the resumed run differs");

    let trained = loss(&sandbox, "whole");
    assert!(
        trained < loss(&sandbox, "base") - 0.05,
        "the adapter has learnt"
    );
    sandbox.ok("export whole --out peft");
    let config: Value = sandbox.value("peft/adapter_config.json");
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
        sandbox.ok(line);
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
    sandbox.succeeds(&format!("{TRAIN} {saved} --steps 20 --out run"));
    sandbox.succeeds(&format!("{TRAIN} --adapter lora --steps 20 --out without"));
    let trained = loss(&sandbox, "run");
    assert!(
        trained < loss(&sandbox, "without"),
        "the embedding has learnt"
    );
    sandbox.ok("export run --out peft");
    let config: Value = sandbox.value("peft/adapter_config.json");
    // The head is tied to the embedding.
    assert_eq!(
        config["modules_to_save"],
        json!(["embed_tokens", "lm_head"])
    );
    assert_eq!(config["ensure_weight_tying"], json!(true));
    for model in ["base --adapter peft", "base --adapter run", "peft"] {
        assert_eq!(loss(&sandbox, model), trained, "{model}");
    }
    sandbox.ok("merge run --out merged");
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
    sandbox.succeeds(&format!("{TRAIN} {options} --steps 30 --out run"));
    let trained = loss(&sandbox, "run");
    assert!(trained < loss(&sandbox, "base --weights int8") - 0.01);
    let text = sandbox.ok("generate run --prompt Hello --max-tokens 4");
    assert!(text.starts_with("Hello"), "{text}");
}

#[test]
fn adapters_that_do_not_fit_are_refused() {
    let sandbox = with_base();
    sandbox.succeeds(&format!("{TRAIN} --adapter lora --steps 1 --out run"));
    sandbox.ok("export run --out peft");
    sandbox.ok("new --preset llama-3.2-1b --vocab-size 259 --set model.d_model=32 --set model.n_layers=1 \
            --set model.heads=2 --set model.kv_heads=2 --set model.head_dim=16 --set model.feed_forward.width=32 \
            --set model.seq_len=96 --out other");
    // Half of an update: the key of a tensor becomes that of a second `lora_B` of the same length.
    let mut weights = sandbox.bytes("peft/adapter_model.safetensors");
    let half = String::from_utf8_lossy(&weights)
        .find("q_proj.lora_A")
        .unwrap();
    weights[half + "q_proj.lora_".len()] = b'C';
    sandbox.write("half/adapter_model.safetensors", weights);
    let config = sandbox.text("peft/adapter_config.json");
    sandbox.write("half/adapter_config.json", &config);
    let biased = config.replace("\"bias\": \"none\"", "\"lora_bias\": true");
    sandbox.write("biased/adapter_config.json", biased);
    let weights = sandbox.bytes("peft/adapter_model.safetensors");
    sandbox.write("biased/adapter_model.safetensors", weights);
    write_encoder(&sandbox.path("encoder"));
    sandbox.check_messages("adapters");
}

/// An adapter of an encoder and of an encoder–decoder: its run is used as a model, merged, and exported for PEFT.
#[test]
fn adapters_of_encoders_and_encoder_decoders_are_trained_merged_and_exported() {
    let sandbox = Sandbox::new();
    let options = "--adapter lora --set train.adapter.targets=[\"all-linear\"] --set train.seq_len=48 \
        --set train.micro_batch=8 --set train.evaluation.interval=20 --steps 40 --learning-rate 1e-2 --renderer plain";
    sandbox.ok("new --preset bert-nano --tokenizer byte --out bert");
    // The pooling is that of the base model, also after the adapter was merged.
    let module = |path: &str, kind: &str| json!({"path": path, "type": format!("sentence_transformers.models.{kind}")});
    let modules = json!([module("", "Transformer"), module("1_Pooling", "Pooling")]);
    sandbox.write("bert/modules.json", modules.to_string());
    let pooling = json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false});
    sandbox.write("bert/1_Pooling/config.json", pooling.to_string());
    let labels = |i: usize| ["odd", "even"][usize::from(i.is_multiple_of(2))];
    let rows = (0..60).map(|i| format!("the word {} of line {i},{}\n", labels(i), labels(i)));
    sandbox.write(
        "rows.csv",
        format!("text,label\n{}", rows.collect::<String>()),
    );
    sandbox.succeeds(&format!(
        "train --from bert --objective classify --data rows.csv {options} --out labels"
    ));
    sandbox.write(
        "texts.txt",
        "the word odd of line 7\nthe word even of line 8\n",
    );
    let classified = |model: &str| -> Vec<Value> {
        let printed = sandbox.ok(&format!("classify {model} texts.txt"));
        let lines = printed
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|line| line["label"].clone()).collect()
    };
    assert_eq!(classified("labels"), ["odd", "even"]);
    sandbox.ok("info labels").assert_has("an adapter of");

    sandbox.write_sources();
    sandbox.ok("new --preset t5-nano --tokenizer byte --out t5");
    sandbox.succeeds(&format!(
        "train --from t5 --objective seq2seq --data sources.jsonl {options} --out targets"
    ));
    let target = |model: &str| sandbox.ok(&format!("generate {model} --prompt number"));
    let adapted = target("targets");

    for (run, model, task) in [
        ("labels", "bert", "SEQ_CLS"),
        ("targets", "t5", "SEQ_2_SEQ_LM"),
    ] {
        let peft = format!("{run}-peft");
        sandbox.ok(&format!("export {run} --out {peft}"));
        let config: Value = sandbox.value(format!("{peft}/adapter_config.json"));
        assert_eq!(config["task_type"], task);
        sandbox.ok(&format!("merge {run} --out {run}-merged"));
        sandbox.ok(&format!("info {model} --adapter {run}"));
    }
    // A classifier is saved with the adapter, as PEFT does.
    let config: Value = sandbox.value("labels-peft/adapter_config.json");
    let saved = config["modules_to_save"].as_array().unwrap();
    assert!(saved.contains(&json!("classifier")), "{config}");
    assert_eq!(classified("labels-merged"), ["odd", "even"]);
    let embedded = |model: &str| -> Vec<f64> {
        let printed = sandbox.ok(&format!("embed {model} texts.txt"));
        let first: Value = serde_json::from_str(printed.lines().next().unwrap()).unwrap();
        serde_json::from_value(first["embedding"].clone()).unwrap()
    };
    let vectors = ["labels", "labels-merged"].map(embedded);
    let length = vectors[0].iter().map(|x| x * x).sum::<f64>().sqrt();
    assert!(
        length > 1.5,
        "the first state, which is not normalized: {length}"
    );
    for (run, merged) in vectors[0].iter().zip(&vectors[1]) {
        assert!((run - merged).abs() < 1e-4, "{run} {merged}");
    }
    assert_eq!(target("targets-merged"), adapted);
    let with_files = "generate t5 --adapter targets-peft --prompt number";
    assert_eq!(sandbox.ok(with_files), adapted);
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
    let text = sandbox.text(file);
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
        ran.says(&format!("`init_lora_weights` = {value}"));
        ran.says(hint);
    }
    let ran = sandbox.run(["generate", "an adapter/base", "--prompt", "a"]);
    ran.says("--tokens 1,2,3");
    let ran = sandbox.run(["chat", "an adapter/base"]);
    ran.stderr.assert_lacks("emberlm generate an adapter");
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
    let ran = sandbox.succeeds(&format!("prepare {file} {options}"));
    ran.prints("33 documents");
    ran.prints("7 documents");
}

#[test]
fn adapters_of_one_base_are_served_by_name() {
    let sandbox = with_base();
    sandbox.succeeds(&format!("{TRAIN} --adapter lora --steps 30 --out run"));
    sandbox.ok("export run --out peft");
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
    let base = sandbox.bytes("base/model.safetensors");
    let line = |i: usize| {
        let question = format!("What is {i}?");
        json!({"prompt": [{"role": "user", "content": question}], "answer": i}).to_string() + "\n"
    };
    sandbox.write("prompts.jsonl", (0..20).map(line).collect::<String>());
    let grpo = "--objective grpo --data prompts.jsonl --adapter lora --set train.adapter.rank=2 \
        --set train.objective.rewards=[{kind=\"regex\",pattern=\"[a-m]\"}] --set train.objective.group=4 \
        --set train.objective.max_new_tokens=8 --set train.objective.beta=0.1 --set train.accumulation=1 \
        --set train.log_interval=1 --set train.checkpoints.interval=4 --learning-rate 1e-2 --renderer plain";
    sandbox.succeeds(&format!("train --from base {grpo} --steps 6 --out whole"));
    let steps = sandbox.events("whole", "step");
    let metric = |step: usize, name: &str| steps[step]["metrics"][name].as_f64().unwrap();
    assert_eq!(steps.len(), 6);
    // A new adapter changes nothing.
    assert!(metric(0, "kl").abs() < 1e-6 && metric(5, "kl") > 0.0);
    assert!((0.0..=1.0).contains(&metric(5, "reward")));
    let samples = sandbox.events("whole", "sample");
    assert!(samples[0]["text"].as_str().unwrap().contains("[reward: "));

    let expected = sandbox.checkpoint("whole", 6);
    fs::remove_dir_all(sandbox.path("whole/checkpoints/step-00000006")).unwrap();
    sandbox.succeeds("train --resume whole --renderer plain");
    let found = sandbox.checkpoint("whole", 6);
    assert!(found == expected, "the resumed run differs");
    assert_eq!(sandbox.bytes("base/model.safetensors"), base);
}
