//! `--cache f16` and `--cache q8`: nearly the results of f32 caches in fewer bytes, in every command with a cache.

use serde_json::{Value, json};

use super::support::tensors::floats;
use super::support::{AssertText, Sandbox};

/// A trained model with heads of 32 elements, a block of q8.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::with_data();
    let wide = "--set model.d_model=64 --set model.heads=2 --set model.kv_heads=2";
    sandbox.trains(&format!(
        "{wide} --data data --out run --set train.steps=80"
    ));
    sandbox
}

/// The logits that `emberlm logits` writes.
fn logits(sandbox: &Sandbox, more: &str) -> Vec<f32> {
    let tokens = "1,4,2,9,5,3,8,1,1,4,2,9,6,3,8,2";
    let line = format!("logits run --tokens {tokens} --out l.safetensors {more}");
    sandbox.ok(&line);
    floats(&sandbox.bytes("l.safetensors"), "logits")
}

#[test]
fn results_are_close_to_those_of_f32_caches() {
    let sandbox = sandbox();
    let eval =
        |more: &str| -> Value { sandbox.json(&format!("eval run --data data --json {more}")) };
    let exact = eval("");
    assert_eq!(eval("--cache f32"), exact);
    let exact_logits = logits(&sandbox, "");
    let generate = |more: &str| -> Value {
        let line =
            "generate run --prompt 1 --temperature 0 --max-new-tokens 25 --json --logprobs 2";
        sandbox.json(&format!("{line} {more}"))
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
        let found: Value = sandbox.json(&format!("{line} {more}"));
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
    let memory = sandbox.json::<Value>("info run --json")["memory_bytes"].clone();
    // Keys and values of two heads of 32 elements in two layers, for 32 tokens.
    assert_eq!(memory["kv_cache"], 2 * 2 * 2 * 32 * 32 * 4);
    assert_eq!(memory["kv_cache_f16"], 2 * 2 * 2 * 32 * 32 * 2);
    assert_eq!(memory["kv_cache_q8"], 2 * 2 * 2 * 32 * 34);
    let info = sandbox.ok("info run");
    info.assert_has("the full length; f16 16.00 KiB, q8 8.50 KiB");
}

#[test]
fn unsupported_formats_are_refused() {
    let sandbox = Sandbox::with_data();
    sandbox.trains("--data data --out run --set train.steps=2");
    // Heads of 12 elements.
    let ran = sandbox.fails("serve run --cache q8 --port 0");
    let rule =
        "keys and values of 12 elements per head cannot be cached as q8: must be a multiple of 32";
    ran.says(rule);
    ran.says("hint: --cache f16 fits every head dimension");
    sandbox.ok("generate run --prompt 1 --cache f16");
    if cfg!(feature = "ndarray") {
        let ran = sandbox.fails("generate run --prompt 1 --cache f16 --backend ndarray");
        let rule = "this backend cannot cache keys and values as f16: only f32 is supported";
        ran.says(rule);
    }
}
