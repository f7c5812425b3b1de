//! Adapters of one base model are served by one engine: in shared batches, each with the answers of `generate`.

use std::collections::HashSet;
use std::fs;
use std::thread;

use serde_json::{Value, json};

use super::fine_tuning::with_base;
use super::support::server::Server;
use super::support::{Sandbox, wait_until};

const TRAIN: &str = "train --from base --data talks --learning-rate 3e-2 --renderer plain --seed 3 \
    --set train.micro_batch=2 --set train.accumulation=1 --steps 20";

/// A base model and adapters of it: the run `lora`, the run `dora`, and `peft` in PEFT's format.
pub fn with_adapters() -> Sandbox {
    let sandbox = with_base();
    let all = "--set train.adapter.targets=[\"all-linear\"]";
    for (name, options) in [
        (
            "lora",
            format!("--adapter lora --set train.adapter.rank=3 {all}"),
        ),
        (
            "dora",
            format!("--adapter dora --set train.adapter.rank=2 {all}"),
        ),
        (
            "queries",
            "--adapter lora --set train.adapter.rank=2".to_owned(),
        ),
    ] {
        sandbox.succeeds(&format!("{TRAIN} {options} --out {name}"));
    }
    sandbox.ok("export queries --out peft");
    sandbox
}

/// The arguments of `generate` for each model.
const MODELS: [(&str, &str); 4] = [
    ("base", "base"),
    ("lora", "base --adapter lora"),
    ("dora", "base --adapter dora"),
    ("peft", "base --adapter peft"),
];

/// The ids that end a text, which the adapters would choose early.
const ENDS: [&str; 2] = ["256", "258"];

fn request(model: &str, prompt: &str) -> Value {
    let bias = ENDS.map(|id| (id.to_owned(), json!(-100)));
    json!({ "model": model, "prompt": prompt, "max_tokens": 24, "temperature": 0, "return_token_ids": true,
        "logprobs": 0, "logit_bias": serde_json::Map::from_iter(bias) })
}

pub fn answer(server: &Server, model: &str, prompt: &str) -> Value {
    let answer = server.post("/v1/completions", &request(model, prompt));
    assert_eq!(answer.status, 200, "{model}: {}", answer.body);
    answer.json()
}

pub fn generated(sandbox: &Sandbox, model: &str, prompt: &str) -> Value {
    let bias = ENDS.map(|id| format!("--logit-bias {id}=-100")).join(" ");
    let options = "--max-new-tokens 24 --temperature 0 --json";
    let line = format!("generate {model} --prompt {prompt} {options} {bias}");
    sandbox.json::<Value>(&line)["tokens"].clone()
}

/// The value of a metric for each model that has one.
fn metric(server: &Server, name: &str) -> Vec<(String, u64)> {
    let text = server.get("/metrics").body;
    let of = |line: &str| {
        let line = line.strip_prefix(name)?.strip_prefix("{model=\"")?;
        let (model, value) = line.split_once("\"} ")?;
        Some((model.to_owned(), value.parse().unwrap()))
    };
    text.lines().filter_map(of).collect()
}

/// Waits until a metric has these values, one for each engine. Metrics follow after the answers.
fn wait_for(server: &Server, name: &str, expected: &[(&str, u64)]) {
    let expected = expected
        .iter()
        .map(|&(model, value)| (model.to_owned(), value));
    let expected: Vec<_> = expected.collect();
    let what = format!("{name} of {expected:?}");
    wait_until(&what, || metric(server, name) == expected);
}

#[test]
fn concurrent_requests_for_adapters_have_the_answers_of_each_by_itself() {
    let sandbox = with_adapters();
    // An adapter with a NaN in the same batches.
    fs::create_dir(sandbox.path("damaged")).unwrap();
    let copied = |name: &str| fs::read(sandbox.path("peft").join(name)).unwrap();
    let mut weights = copied("adapter_model.safetensors");
    let header = 8 + usize::try_from(u64::from_le_bytes(weights[..8].try_into().unwrap())).unwrap();
    weights[header..header + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    sandbox.write("damaged/adapter_model.safetensors", weights);
    sandbox.write("damaged/adapter_config.json", copied("adapter_config.json"));
    let prompts = ["Hello", "What", "Thanks"];
    let asked: Vec<(&str, &str)> = prompts
        .iter()
        .flat_map(|prompt| MODELS.iter().map(move |(model, _)| (*model, *prompt)))
        .collect();
    for options in ["", "--deterministic", "--weights int8"] {
        let server = sandbox.serve(&format!(
            "serve base lora dora peft damaged --slots 6 {options}"
        ));
        let answers: Vec<Value> = thread::scope(|scope| {
            let asked: Vec<_> = asked
                .iter()
                .map(|&(model, prompt)| scope.spawn(|| answer(&server, model, prompt)))
                .collect();
            let damaged: Vec<_> = prompts
                .iter()
                .map(|prompt| {
                    scope.spawn(|| server.post("/v1/completions", &request("damaged", prompt)))
                })
                .collect();
            for failed in damaged {
                let failed = failed.join().unwrap();
                assert!(
                    failed.status == 500 && failed.body.contains("is NaN"),
                    "{}",
                    failed.body
                );
            }
            asked
                .into_iter()
                .map(|asked| asked.join().unwrap())
                .collect()
        });
        let format = options.contains("int8").then_some("--weights int8");
        for ((model, prompt), answer) in asked.iter().zip(&answers) {
            let (_, arguments) = MODELS.iter().find(|(name, _)| name == model).unwrap();
            let arguments = format!("{arguments} {}", format.unwrap_or_default());
            let expected = generated(&sandbox, &arguments, prompt);
            let found = &answer["choices"][0]["token_ids"];
            assert_eq!(found, &expected, "{options} {model}: {prompt}");
            // Concurrent requests change the rounding of log-probabilities only.
            let alone = self::answer(&server, model, prompt);
            let logprobs = |answer: &Value| {
                let of = &answer["choices"][0]["logprobs"]["token_logprobs"];
                serde_json::from_value::<Vec<f64>>(of.clone()).unwrap()
            };
            for (a, b) in logprobs(answer).into_iter().zip(logprobs(&alone)) {
                let most = if options == "--deterministic" {
                    0.0
                } else {
                    1e-4
                };
                assert!((a - b).abs() <= most, "{options} {model}: {a} and {b}");
            }
        }
        for answers in answers.chunks(MODELS.len()) {
            let ids = answers
                .iter()
                .map(|answer| answer["choices"][0]["logprobs"]["token_logprobs"].to_string());
            let distinct: HashSet<String> = ids.collect();
            assert_eq!(
                distinct.len(),
                MODELS.len(),
                "{options}: each has another answer"
            );
        }
        // One engine made all tokens.
        let count = |answer: &Value| answer["usage"]["completion_tokens"].as_u64().unwrap();
        let total: u64 = answers.iter().map(count).sum();
        let expected = [("base", 2 * total)];
        wait_for(&server, "emberlm_generated_tokens_total", &expected);
    }
}

#[test]
fn an_adapter_with_a_module_of_its_base_is_served_beside_the_others() {
    let sandbox = with_base();
    for (name, options) in [
        ("lora", ""),
        (
            "whole",
            "--set train.adapter.modules_to_save=[\"embed_tokens\"]",
        ),
    ] {
        let options = format!("--adapter lora {options} --out {name}");
        sandbox.succeeds(&format!("{TRAIN} {options}"));
    }
    let server = sandbox.serve("serve base lora whole");
    let models = [
        ("base", "base"),
        ("lora", "base --adapter lora"),
        ("whole", "base --adapter whole"),
    ];
    let answers = models.map(|(model, arguments)| {
        let ids = answer(&server, model, "Hello")["choices"][0]["token_ids"].clone();
        assert_eq!(ids, generated(&sandbox, arguments, "Hello"), "{model}");
        ids
    });
    assert_ne!(answers[0], answers[2], "the module has no effect");
    let shown = server.json("/api/models")["models"].take();
    let bases = [0, 1, 2].map(|at: usize| shown[at]["adapter_of"].clone());
    assert_eq!(bases, [Value::Null, json!("base"), Value::Null]);
    let engines = metric(&server, "emberlm_free_slots");
    let engines: Vec<&str> = engines.iter().map(|(model, _)| &**model).collect();
    assert_eq!(engines, ["base", "whole"]);
}

#[test]
fn adapters_share_slots_and_no_cached_prefix() {
    let sandbox = with_adapters();
    // The base need not be served itself.
    let server = sandbox.serve("serve lora peft --slots 3");
    let cached = |model: &str| {
        let answer = answer(&server, model, "Hello");
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].clone()
    };
    let found = ["lora", "peft", "lora", "peft"].map(cached);
    assert_eq!(found, [json!(0), json!(0), json!(4), json!(4)]);
    wait_for(&server, "emberlm_free_slots", &[("lora", 3)]);
    server
        .post("/v1/completions", &request("base", "Hello"))
        .expect(404);
    drop(server);

    // Models with other settings have other engines.
    let config = "[[model]]\npath = \"base\"\nslots = 2\n[[model]]\npath = \"lora\"\nslots = 5\n";
    sandbox.write("serve.toml", config);
    let server = sandbox.serve("serve peft --slots 2 --config serve.toml");
    wait_for(&server, "emberlm_free_slots", &[("peft", 2), ("lora", 5)]);
    let expected = generated(&sandbox, "base --adapter lora", "Hello");
    assert_eq!(
        answer(&server, "lora", "Hello")["choices"][0]["token_ids"],
        expected
    );
}

#[test]
fn an_adapter_whose_recorded_base_is_elsewhere_is_one_of_the_only_base() {
    let sandbox = with_adapters();
    let expected = generated(&sandbox, "base --adapter peft", "Hello");
    sandbox.edit("peft/adapter_config.json", |config| {
        config["base_model_name_or_path"] = json!("somebody/a-model");
    });
    let server = sandbox.serve("serve peft base lora");
    let found = answer(&server, "peft", "Hello");
    assert_eq!(found["choices"][0]["token_ids"], expected);
    wait_for(&server, "emberlm_waiting_requests", &[("peft", 0)]);
    drop(server);
    let ran = sandbox.words("serve peft lora --port 0");
    ran.says("peft: ");
    ran.says("somebody/a-model");
    assert_eq!(ran.code, Some(1), "{ran}");
}

#[test]
fn adapters_are_unloaded_and_loaded_with_their_base() {
    let sandbox = with_adapters();
    sandbox.ok("merge dora --out merged");
    // Less than any model needs: each is loaded only while it is the only one.
    let server = sandbox.serve("serve base lora merged peft --memory 1B");
    for _ in 0..2 {
        for (model, arguments) in [MODELS[1], ("merged", "merged"), MODELS[3], MODELS[0]] {
            let expected = generated(&sandbox, arguments, "Hello");
            let answer = answer(&server, model, "Hello");
            assert_eq!(answer["choices"][0]["token_ids"], expected, "{model}");
        }
    }
}

#[test]
fn an_adapter_of_another_base_is_refused_at_the_start() {
    let sandbox = with_adapters();
    let small = "--set model.d_model=32 --set model.n_layers=1 --set model.heads=2 --set model.kv_heads=2 \
        --set model.head_dim=16 --set model.feed_forward.width=32 --set model.seq_len=96";
    let line = format!("new --preset llama-3.2-1b --vocab-size 259 {small} --out other");
    sandbox.ok(&line);
    sandbox.ok("export other --out exported");
    fs::copy(
        sandbox.path("base/tokenizer.json"),
        sandbox.path("exported/tokenizer.json"),
    )
    .unwrap();
    sandbox.edit("peft/adapter_config.json", |config| {
        config["base_model_name_or_path"] = json!("../exported");
    });
    let ran = sandbox.words("serve exported peft lora --port 0");
    ran.says("peft: ");
    ran.says("has shape");
    assert_ne!(ran.code, Some(0), "{ran}");

    let weights = sandbox.path("base/model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&weights, bytes).unwrap();
    let ran = sandbox.words("serve base lora --port 0");
    ran.says("lora: the adapter was trained on");
    assert_ne!(ran.code, Some(0), "{ran}");
}
