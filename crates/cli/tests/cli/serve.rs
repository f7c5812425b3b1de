//! `emberlm serve` over raw HTTP: behaviour that tests with the official client do not cover.

use std::fs;
use std::io::{Read, Write};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use emberlm_model::ModelConfig;
use serde_json::{Value, json};

use super::support::model::{tiny, write_run};
use super::support::server::{Answer, Server, together};
use super::support::{AssertText, Sandbox};

/// A run `run` with a byte-level model and a context of `seq_len` tokens.
pub fn with_model(seq_len: usize, steps: &[usize]) -> Sandbox {
    let sandbox = Sandbox::with_text("hello small world\n".repeat(20), "byte");
    let spec = sandbox.spec("data");
    let model = ModelConfig {
        seq_len,
        ..tiny(257)
    };
    write_run(&sandbox.path("run"), &model, Some(&spec), steps);
    sandbox
}

/// A request for a greedy completion of token ids.
pub fn greedy(prompt: &[u32], tokens: usize) -> Value {
    json!({ "model": "run", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "return_token_ids": true })
}

pub fn ids(choice: &Value) -> Vec<u64> {
    let ids = choice["token_ids"].as_array().unwrap().iter();
    ids.map(|id| id.as_u64().unwrap()).collect()
}

/// The output of `emberlm generate` for the same prompt.
pub fn generated(sandbox: &Sandbox, prompt: &[u32], tokens: usize) -> Vec<u64> {
    let prompt: Vec<String> = prompt.iter().map(u32::to_string).collect();
    let line = format!(
        "generate run --tokens {} --max-new-tokens {tokens} --temperature 0 --json",
        prompt.join(",")
    );
    ids(&json!({ "token_ids": sandbox.json::<Value>(&line)["tokens"] }))
}

#[test]
fn concurrent_requests_equal_single_ones() {
    let sandbox = with_model(64, &[1]);
    let server = sandbox.serve("serve run --slots 3");
    let prompts: Vec<Vec<u32>> = (1..=9)
        .map(|n| (0..n * 3).map(|i| (i * 7 + n) % 256).collect())
        .collect();
    let answers = together(&prompts, |prompt| {
        let answer = server.post("/v1/completions", &greedy(prompt, 20));
        let mut streamed = greedy(prompt, 20);
        streamed["stream"] = true.into();
        let events = server.post("/v1/completions", &streamed).events();
        let pieces = events.iter().flat_map(|event| ids(&event["choices"][0]));
        (pieces.collect::<Vec<u64>>(), answer)
    });
    for (prompt, (streamed, answer)) in prompts.iter().zip(answers) {
        let expected = generated(&sandbox, prompt, 20);
        let answer = answer.json();
        assert_eq!(ids(&answer["choices"][0]), expected, "{prompt:?}");
        assert_eq!(streamed, expected, "{prompt:?}");
        assert_eq!(answer["usage"]["prompt_tokens"], prompt.len());
        assert_eq!(answer["usage"]["completion_tokens"], expected.len());
    }
}

/// A number of tokens that takes longer than the test.
const LONG: usize = 16_000;

fn long(stream: bool) -> String {
    let body = json!({ "model": "run", "prompt": [1, 2], "max_tokens": LONG, "temperature": 0, "stream": stream,
        "logit_bias": { "256": -100 } });
    body.to_string()
}

const JSON: &str = "content-type: application/json\r\n";

#[test]
fn a_disconnected_client_frees_its_slot() {
    let sandbox = with_model(1 << 14, &[1]);
    let server = sandbox.serve("serve run --slots 1 --max-tokens 16000 --context 16384");
    for streams in [true, false] {
        let first = server.begin("POST", "/v1/completions", JSON, &long(streams));
        server.wait_for("emberlm_running_sequences", "1");
        let waiting = server.begin("POST", "/v1/completions", JSON, &long(streams));
        server.wait_for("emberlm_waiting_requests", "1");
        drop(waiting);
        server.wait_for("emberlm_waiting_requests", "0");
        drop(first);
        server.wait_for("emberlm_free_slots", "1");
    }
    let start = Instant::now();
    server.post("/v1/completions", &greedy(&[1], 3)).expect(200);
    let metrics = server.get("/metrics").body;
    let made: f64 = metrics
        .lines()
        .find_map(|line| line.strip_prefix("emberlm_generated_tokens_total{model=\"run\"} "))
        .unwrap()
        .parse()
        .unwrap();
    // None of the four completions was finished.
    assert!(made < LONG as f64, "{made} tokens, {:?}", start.elapsed());
}

#[test]
fn the_queue_is_bounded() {
    let sandbox = with_model(1 << 14, &[1]);
    let server =
        sandbox.serve("serve run --slots 1 --max-queue 1 --max-tokens 16000 --context 16384");
    let _first = server.begin("POST", "/v1/completions", JSON, &long(true));
    let _second = server.begin("POST", "/v1/completions", JSON, &long(false));
    server.wait_for("emberlm_waiting_requests", "1");
    let third = server.post("/v1/completions", &greedy(&[1], 3)).expect(429);
    third.headers.assert_has("retry-after: 1");
    assert_eq!(third.json()["error"]["code"], "rate_limit_exceeded");
}

#[test]
fn long_requests_time_out() {
    let sandbox = with_model(1 << 14, &[1]);
    let server =
        sandbox.serve("serve run --slots 1 --timeout 1 --max-tokens 16000 --context 16384");
    let answer = server
        .ask("POST", "/v1/completions", JSON, &long(false))
        .expect(504);
    assert_eq!(answer.json()["error"]["code"], "timeout");
    server.wait_for("emberlm_free_slots", "1");
    let streamed = server.ask("POST", "/v1/completions", JSON, &long(true));
    let events = streamed.events();
    assert_eq!(events.last().unwrap()["error"]["code"], "timeout");
    streamed.body.assert_lacks("[DONE]");
    server.wait_for("emberlm_free_slots", "1");
}

#[cfg(unix)]
#[test]
fn a_signal_drains_running_requests() {
    let sandbox = with_model(1 << 12, &[1]);
    let server = sandbox.serve("serve run");
    let mut asked = server.begin(
        "POST",
        "/v1/completions",
        JSON,
        &json!({
        "model": "run", "prompt": [1, 2], "max_tokens": 400, "temperature": 0, "stream": true,
        "logit_bias": { "256": -100 } })
        .to_string(),
    );
    server.wait_for("emberlm_running_sequences", "1");
    let id = server.id().to_string();
    Command::new("kill").args(["-TERM", &id]).status().unwrap();
    let mut text = String::new();
    asked.read_to_string(&mut text).unwrap();
    let answer = Answer::new(&text);
    assert_eq!(
        answer.events().last().unwrap()["choices"][0]["finish_reason"],
        "length"
    );
    assert!(answer.body.ends_with("data: [DONE]\n\n"));
    assert_eq!(server.ended(), Some(0));
}

/// The time limit of a head is 30 s. Nobody waits for an answer to half of one.
#[cfg(unix)]
#[test]
fn half_a_head_does_not_delay_a_signal() {
    let sandbox = with_model(64, &[1]);
    let server = sandbox.serve("serve run");
    let mut half = server.connect();
    half.write_all(b"GET /hea").unwrap();
    // A connection that was opened later has been answered, so the half was received too.
    server.get("/health");
    let id = server.id().to_string();
    let begun = Instant::now();
    Command::new("kill").args(["-TERM", &id]).status().unwrap();
    assert_eq!(server.ended(), Some(0));
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn a_followed_run_serves_each_new_checkpoint() {
    let (first, sandbox) = (with_model(1 << 12, &[1]), with_model(1 << 12, &[1]));
    sandbox.write("run/config.toml", "");
    // A different model, which becomes the run's next checkpoint.
    let next = with_model(1 << 12, &[2]);
    let server = sandbox.serve("serve --follow run --slots 2");
    let prompt: Vec<u32> = (0..20).collect();
    let (before, after) = (
        generated(&sandbox, &prompt, 30),
        generated(&next, &prompt, 30),
    );
    assert_ne!(before, after);
    let answered = |server: &Server| {
        let answer = server
            .post("/v1/completions", &greedy(&prompt, 30))
            .expect(200);
        ids(&answer.json()["choices"][0])
    };
    assert_eq!(answered(&server), before);
    let mut under_way = greedy(&prompt, 1500);
    under_way["stream"] = true.into();
    let mut under_way = server.begin("POST", "/v1/completions", JSON, &under_way.to_string());
    server.wait_for("emberlm_running_sequences", "1");
    let checkpoint = "checkpoints/step-00000002";
    fs::rename(
        next.path("run").join(checkpoint),
        sandbox.path("run").join(checkpoint),
    )
    .unwrap();
    let start = Instant::now();
    while answered(&server) != after {
        assert!(start.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_millis(20));
    }
    // A request in progress keeps the model that it started with.
    let mut text = String::new();
    under_way.read_to_string(&mut text).unwrap();
    let events = Answer::new(&text).events();
    let made: Vec<u64> = events
        .iter()
        .flat_map(|event| ids(&event["choices"][0]))
        .collect();
    assert_eq!(made, generated(&first, &prompt, 1500));
}

#[test]
fn the_api_key_is_required() {
    let sandbox = with_model(64, &[1]);
    sandbox.write("key", "sesame\n");
    let server = sandbox.serve("serve run --api-key-file key");
    let body = greedy(&[1], 2).to_string();
    for (headers, status) in [
        ("", 401),
        ("authorization: Bearer sesam\r\n", 401),
        ("authorization: sesame\r\n", 401),
        ("authorization: Basic sesame\r\n", 401),
        ("authorization: bearersesame\r\n", 401),
        ("authorization: Bearer sesame\r\n", 200),
        ("authorization: bearer sesame\r\n", 200),
        ("authorization: BEARER  sesame\r\n", 200),
    ] {
        let headers = format!("{JSON}{headers}");
        for path in ["/v1/completions", "/api/play"] {
            let body = if path == "/api/play" {
                r#"{"model":"run","prompt":"a","max_tokens":1}"#
            } else {
                &body
            };
            let answer = server.ask("POST", path, &headers, body);
            assert_eq!(answer.status, status, "{headers}: {}", answer.body);
        }
    }
    for path in ["/v1/models", "/metrics", "/api/models"] {
        assert_eq!(server.get(path).status, 401, "{path}");
        let shown = server.ask("GET", path, "authorization: Bearer sesame\r\n", "");
        assert_eq!(shown.status, 200, "{path}");
    }
    assert_eq!(server.get("/openapi.json").status, 200);
    assert_eq!(server.get("/health").status, 200);
}
