//! `--cache f16` and `--cache q8`: nearly the results of f32 caches in fewer bytes, in every command with a cache.

use std::fs;

use safetensors::SafeTensors;
use serde_json::{Value, json};

use super::support::Sandbox;
use super::support::train::trained;

/// A trained model with heads of 32 elements, a block of q8.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::with_data();
    let wide = "--set model.d_model=64 --set model.heads=2 --set model.kv_heads=2";
    trained(sandbox.train(&format!(
        "{wide} --data data --out run --set train.steps=80"
    )));
    sandbox
}

/// The logits that `emberlm logits` writes.
fn logits(sandbox: &Sandbox, more: &str) -> Vec<f32> {
    let tokens = "1,4,2,9,5,3,8,1,1,4,2,9,6,3,8,2";
    let line = format!("logits run --tokens {tokens} --out l.safetensors {more}");
    sandbox.words(&line).ok();
    let bytes = fs::read(sandbox.path("l.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let (values, _) = tensors.tensor("logits").unwrap().data().as_chunks::<4>();
    values
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect()
}

#[test]
fn results_are_close_to_those_of_f32_caches() {
    let sandbox = sandbox();
    let eval = |more: &str| -> Value {
        sandbox
            .words(&format!("eval run --data data --json {more}"))
            .json()
    };
    let exact = eval("");
    assert_eq!(eval("--cache f32"), exact);
    let exact_logits = logits(&sandbox, "");
    let generate = |more: &str| -> Value {
        let line =
            "generate run --prompt 1 --temperature 0 --max-new-tokens 25 --json --logprobs 2";
        sandbox.words(&format!("{line} {more}")).json()
    };
    let exact_text = generate("");
    for (format, perplexity, largest) in [("f16", 1e-4, 0.01), ("q8", 2e-3, 0.1)] {
        let option = format!("--cache {format}");
        let found = eval(&option);
        let of = |found: &Value| found["perplexity"].as_f64().unwrap();
        let ratio = of(&found) / of(&exact);
        assert!(
            (ratio - 1.0).abs() < perplexity,
            "{format}: {found} {exact}"
        );
        assert_ne!(ratio, 1.0, "{format}: nothing was rounded");

        let logits = logits(&sandbox, &option);
        let differences = logits.iter().zip(&exact_logits).map(|(a, b)| (a - b).abs());
        let difference = differences.fold(0.0, f32::max);
        assert!(
            difference > 0.0 && difference < largest,
            "{format}: {difference}"
        );

        // The same text, up to the first position whose two most probable tokens are nearly as probable.
        let text = generate(&option);
        let [tokens, expected] =
            [&text, &exact_text].map(|text| text["tokens"].as_array().unwrap());
        assert_eq!(tokens.len(), 25);
        if let Some(at) = (0..25).find(|&at| tokens[at] != expected[at]) {
            let top = &exact_text["logprobs"][at]["top"];
            let gap = top[0]["logprob"].as_f64().unwrap() - top[1]["logprob"].as_f64().unwrap();
            assert!(
                gap < 0.2,
                "{format}: token {at} differs by {gap}: {text} {exact_text}"
            );
        }
    }
}

#[test]
fn every_kind_of_generation_supports_packed_caches() {
    let sandbox = sandbox();
    let generate = |more: &str| -> Vec<Value> {
        let line = "generate run --prompt 1 --json --cache q8";
        let found: Value = sandbox.words(&format!("{line} {more}")).json();
        found["tokens"].as_array().unwrap().clone()
    };
    let greedy = generate("--temperature 0 --max-new-tokens 20");
    assert_eq!(greedy.len(), 20);
    assert_eq!(
        generate("--temperature 0 --draft run --max-new-tokens 20"),
        greedy
    );
    assert_eq!(generate("--beams 1 --max-new-tokens 20"), greedy);
    assert!(!generate("--beams 3 --max-new-tokens 20").is_empty());
    // Longer than the context of 32 tokens, which slides.
    assert_eq!(generate("--seed 3 --max-new-tokens 60").len(), 60);

    let server = sandbox.serve("serve run --cache q8");
    let body = json!({
        "model": "run", "prompt": [1, 2, 3], "max_tokens": 5, "temperature": 0, "n": 3
    });
    let [first, second] = [(); 2].map(|()| server.post("/v1/completions", &body));
    assert_eq!((first.status, second.status), (200, 200));
    let text = |answer: &Value, at: usize| answer["choices"][at]["text"].clone();
    let [first, second] = [first.json(), second.json()];
    assert_eq!(text(&first, 0), text(&first, 2));
    assert_eq!(text(&first, 0), text(&second, 1));
}

#[test]
fn packed_caches_are_smaller() {
    let sandbox = sandbox();
    let memory = sandbox.words("info run --json").json::<Value>()["memory_bytes"].clone();
    // Keys and values of two heads of 32 elements in two layers, for 32 tokens.
    assert_eq!(memory["kv_cache"], 2 * 2 * 2 * 32 * 32 * 4);
    assert_eq!(memory["kv_cache_f16"], 2 * 2 * 2 * 32 * 32 * 2);
    assert_eq!(memory["kv_cache_q8"], 2 * 2 * 2 * 32 * 34);
    let info = sandbox.words("info run").ok();
    assert!(
        info.contains("the full length; f16 16.00 KiB, q8 8.50 KiB"),
        "{info}"
    );
}

#[test]
fn unsupported_formats_are_refused() {
    let sandbox = Sandbox::with_data();
    trained(sandbox.train("--data data --out run --set train.steps=2"));
    let ran = sandbox.words("generate run --cache q4");
    assert_eq!(ran.code, Some(2), "{ran}");
    assert!(
        ran.stderr.contains("[possible values: f32, f16, q8]"),
        "{ran}"
    );
    // Heads of 12 elements.
    let ran = sandbox.words("serve run --cache q8 --port 0");
    assert_eq!(ran.code, Some(1), "{ran}");
    let rule =
        "keys and values of 12 elements per head cannot be cached as q8: must be a multiple of 32";
    assert!(ran.stderr.contains(rule), "{ran}");
    assert!(
        ran.stderr
            .contains("hint: --cache f16 fits every head dimension"),
        "{ran}"
    );
    sandbox.words("generate run --prompt 1 --cache f16").ok();
    if cfg!(feature = "ndarray") {
        let ran = sandbox.words("generate run --prompt 1 --cache f16 --backend ndarray");
        assert_eq!(ran.code, Some(1), "{ran}");
        let rule = "this backend cannot cache keys and values as f16: only f32 is supported";
        assert!(ran.stderr.contains(rule), "{ran}");
    }
    sandbox
        .words("new --preset t5-nano --vocab-size 9 --out t5")
        .ok();
    let ran = sandbox.words("generate t5 --tokens 1,2 --cache f16");
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(
        ran.stderr.contains("hint: leave out --cache f16 for it"),
        "{ran}"
    );
}
