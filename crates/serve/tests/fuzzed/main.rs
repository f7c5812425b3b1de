//! The fuzzer's entry function over mutations of good bodies: no panic, no error of the server's, and bounded time and
//! memory. `fuzz/` goes on where this ends.

#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../../../model/tests/fuzzed/bounded.rs"]
mod bounded;
mod entry;
#[path = "../../../model/tests/fuzzed/mutate.rs"]
mod mutate;

fn mutations(path: &str, count: u64, good: &[&str], bad: &[&str]) {
    assert!(entry::PATHS.contains(&path));
    let named = |name: &str, bodies: &[&str]| -> Vec<(String, Vec<u8>)> {
        let numbered = bodies.iter().enumerate();
        numbered
            .map(|(at, body)| (format!("{name} {at}"), body.as_bytes().to_vec()))
            .collect()
    };
    let seeds = [named("good", good), named("bad", bad)].concat();
    bounded::run(
        &seeds,
        count,
        |name| name.starts_with("good"),
        |bytes| entry::body(path, bytes),
    );
}

#[test]
fn completions() {
    let good = [
        r#"{"model": "m", "prompt": "Once", "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1,
            "seed": -3, "stop": ["a", "bc"], "n": 2, "logprobs": 3, "presence_penalty": 1, "frequency_penalty": -1,
            "repetition_penalty": 1.1, "logit_bias": {"65": 3.5}, "stream": true, "stream_options": {"include_usage": true}}"#,
        r#"{"model": "m", "prompt": ["a", "b", ""], "echo": true, "stream": false, "stop": "x", "user": "me"}"#,
        r#"{"model": "m", "prompt": [[1, 2], [256]], "max_tokens": 0, "return_token_ids": true, "seed": null}"#,
        r#"{"model": "m", "prompt": "a", "structured_outputs": {"regex": "(ab|c{2,5})+\\d?"}, "max_tokens": 9}"#,
        r#"{"model": "m", "prompt": "a", "structured_outputs": {"choice": ["yes", "no"]}}"#,
        r#"{"model": "m", "structured_outputs": {"json": {"type": "object", "properties": {"a": {"type": "integer",
            "minimum": 3}, "b": {"enum": ["x", null]}}, "required": ["a"], "additionalProperties": false}}}"#,
    ];
    let bad = [
        r#"{"model": "m", "prompt": "a", "n": 5}"#,
        "{\"model\": \"m\"",
    ];
    mutations("/v1/completions", 1500, &good, &bad);
}

#[test]
fn conversations() {
    let good = [
        r#"{"model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "Hi <|im_end|>"}],
            "max_completion_tokens": 4, "logprobs": true, "top_logprobs": 2, "stream": true}"#,
        r#"{"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}], "name": "n"}],
            "max_tokens": 4, "n": 3, "response_format": {"type": "json_object"}, "metadata": {"a": "b"}, "store": false}"#,
        r#"{"model": "m", "messages": [{"role": "user", "content": "a"}], "max_tokens": 3, "response_format": {"type":
            "json_schema", "json_schema": {"name": "x", "strict": true, "schema": {"type": "array", "items": {"type": "null"}}}}}"#,
    ];
    let bad = [r#"{"model": "m", "messages": []}"#];
    mutations("/v1/chat/completions", 800, &good, &bad);
}

#[test]
fn embeddings() {
    let good = [
        r#"{"model": "m", "input": "Once", "encoding_format": "base64", "dimensions": 8, "user": "me"}"#,
        r#"{"model": "m", "input": [[1, 2, 3], [4]], "encoding_format": "float"}"#,
    ];
    let bad = [r#"{"model": "m", "input": [[257]]}"#];
    mutations("/v1/embeddings", 500, &good, &bad);
}

#[test]
fn the_page() {
    let good = [
        r#"{"model": "m", "prompt": "Once", "continued": [1, 2], "max_tokens": 5, "temperature": 0.5, "top_logprobs": 3,
            "stop": ["a"], "seed": 5}"#,
        r#"{"model": "m", "messages": [{"role": "user", "content": "a"}], "continued": [7], "max_tokens": 3}"#,
    ];
    let bad = [r#"{"model": "m"}"#];
    mutations("/api/play", 500, &good, &bad);
}
