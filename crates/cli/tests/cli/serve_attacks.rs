//! Clients of `emberlm serve` that do not read, send slowly or request too much: their resource use is
//! bounded, and other clients are served.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use serde_json::{Value, json};

use super::serve::{greedy, ids, with_model};
use super::support::server::{Answer, Server, together};

pub const JSON: &str = "content-type: application/json\r\n";

/// A value of `/proc/PID/status` in bytes.
pub fn memory(server: &Server, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap();
    let kib: u64 = line
        .trim_matches([':', ' ', '\t', 'k', 'B'])
        .parse()
        .unwrap();
    kib << 10
}

/// Limits the server to `more` bytes of additional address space.
fn limit_memory(server: &Server, more: u64) {
    let limit = Some(memory(server, "VmSize") + more);
    let pid = Pid::from_raw(server.id().cast_signed());
    let limit = Rlimit {
        current: limit,
        maximum: limit,
    };
    prlimit(pid, Resource::As, limit).unwrap();
}

fn metric(server: &Server, name: &str) -> f64 {
    let metrics = server.get("/metrics").body;
    let name = format!("{name}{{model=\"run\"}} ");
    let found = metrics.lines().find_map(|line| line.strip_prefix(&name));
    found.unwrap().parse().unwrap()
}

/// A conversation with the largest possible output per token.
pub fn chat(samples: usize, tokens: usize, stream: bool) -> Value {
    json!({ "model": "run", "messages": [{ "role": "user", "content": "a" }], "n": samples, "max_tokens": tokens,
        "seed": 5, "logprobs": true, "top_logprobs": 20, "logit_bias": { "256": -100 }, "stream": stream })
}

/// The texts of a chat completion stream, by choice index.
fn texts(answer: &Answer, samples: usize) -> Vec<String> {
    let mut texts = vec![String::new(); samples];
    for event in answer.events() {
        for choice in event["choices"].as_array().unwrap() {
            let index = choice["index"].as_u64().unwrap() as usize;
            texts[index] += choice["delta"]["content"].as_str().unwrap_or_default();
        }
    }
    texts
}

#[test]
fn stalled_streams_use_little_memory_and_lose_no_token() {
    let sandbox = with_model(1 << 13, &[1]);
    let server = sandbox.serve(
        "serve run --slots 9 --max-tokens 8000 --context 8192 --chat-template chatml --write-timeout 600",
    );
    let path = "/v1/chat/completions";
    let begin = |body: &Value| server.begin("POST", path, JSON, &body.to_string());
    let expected = server.post(path, &chat(4, 2500, true));
    let expected = texts(&expected, 4);
    limit_memory(&server, 256 << 20);
    let before = memory(&server, "VmRSS");
    let mut read_later = begin(&chat(4, 2500, true));
    let never_read = begin(&chat(4, 7900, true));
    // Tokens are sent until the system's buffers are full, too.
    let start = Instant::now();
    let mut made = -1.0;
    loop {
        let now = metric(&server, "emberlm_generated_tokens_total");
        if now == made && metric(&server, "emberlm_paused_sequences") == 8.0 {
            break;
        }
        made = now;
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "they are not paused"
        );
        thread::sleep(Duration::from_millis(500));
    }
    // Other clients are served meanwhile.
    server
        .post("/v1/completions", &greedy(&[1, 2], 20))
        .expect(200);
    thread::sleep(Duration::from_millis(300));
    let more = metric(&server, "emberlm_generated_tokens_total") - made;
    assert!(
        more <= 20.0,
        "{more} tokens were made for clients that do not read"
    );
    let grown = memory(&server, "VmRSS").saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes are kept for two clients");
    let mut text = String::new();
    read_later.read_to_string(&mut text).unwrap();
    let answer = Answer::new(&text);
    assert!(answer.body.ends_with("data: [DONE]\n\n"));
    assert_eq!(texts(&answer, 4), expected);
    drop(never_read);
    server.wait_for("emberlm_free_slots", "9");
}

#[test]
fn the_time_limit_frees_slots_of_clients_that_do_not_read() {
    let sandbox = with_model(1 << 13, &[1]);
    let server = sandbox.serve(
        "serve run --slots 2 --max-queue 2 --timeout 4 --max-tokens 8000 --context 8192 --chat-template chatml --write-timeout 600",
    );
    let body = chat(1, 8000, true).to_string();
    let begin = || server.begin("POST", "/v1/chat/completions", JSON, &body);
    let stalled: Vec<TcpStream> = (0..4).map(|_| begin()).collect();
    server.wait_for("emberlm_waiting_requests", "2");
    server.wait_for("emberlm_free_slots", "2");
    server
        .post("/v1/completions", &greedy(&[1, 2], 2))
        .expect(200);
    drop(stalled);
}

#[test]
fn idle_connections_are_closed_for_new_ones() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    let sandbox = with_model(64, &[1]);
    let server = sandbox.serve("serve run");
    let begun = [
        "",
        "GET /health HTTP/1.1\r\nhost: local",
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
        "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ];
    let idle = (0..1100).map(|n| {
        let mut stream = server.connect();
        // Writing to a connection that was closed fails.
        let _ = stream.write_all(begun[n % begun.len()].as_bytes());
        stream
    });
    let idle: Vec<TcpStream> = idle.collect();
    let start = Instant::now();
    for _ in 0..20 {
        assert_eq!(server.get("/health").status, 200);
    }
    let waited = start.elapsed();
    assert!(
        waited < Duration::from_secs(20),
        "answered after {waited:?}"
    );
    drop(idle);
}

#[test]
fn pipelining_clients_that_never_read_are_cut_off() {
    let sandbox = with_model(64, &[1]);
    let server = sandbox.serve("serve run --write-timeout 1");
    let asked = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(200);
    let clients: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
    thread::scope(|scope| {
        for mut client in &clients {
            let asked = &asked;
            scope.spawn(move || {
                client
                    .set_write_timeout(Some(Duration::from_secs(20)))
                    .unwrap();
                let error = loop {
                    if let Err(error) = client.write_all(asked.as_bytes()) {
                        break error;
                    }
                };
                let stuck = [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind());
                assert!(!stuck, "the connection was left open: {error}");
            });
        }
    });
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn embeddings_yield_to_streams_and_end_with_their_clients() {
    let sandbox = with_model(2048, &[1]);
    let server = sandbox.serve("serve run --slots 4");
    let texts = json!({ "model": "run", "input": vec![vec![7; 2000]; 60] }).to_string();
    let begin = || server.begin("POST", "/v1/embeddings", JSON, &texts);
    let embedding = [begin(), begin()];
    server.wait_for("emberlm_waiting_requests", "2");
    let made = metric(&server, "emberlm_prompt_tokens_total");
    let answer = server.post("/v1/completions", &greedy(&[1, 2], 20));
    assert_eq!(ids(&answer.json()["choices"][0]).len(), 20);
    let read = metric(&server, "emberlm_prompt_tokens_total") - made;
    assert!(
        read < 60_000.0,
        "{read} tokens of texts were read before 20 tokens were made"
    );
    assert_eq!(metric(&server, "emberlm_waiting_requests"), 2.0);
    drop(embedding);
    server.wait_for("emberlm_waiting_requests", "0");
    server.wait_for("emberlm_free_slots", "4");

    let limited = sandbox.serve("serve run --slots 2 --timeout 1");
    let texts = json!({ "model": "run", "input": vec![vec![7; 2000]; 64] });
    let ask = |_: &u32| limited.post("/v1/embeddings", &texts).status;
    let answers = together(&[0; 8], ask);
    assert!(answers.contains(&504), "{answers:?}");
    limited.wait_for("emberlm_free_slots", "2");
    limited.wait_for("emberlm_waiting_requests", "0");
}

/// Answers of more than 64 KiB are written on another thread.
#[test]
fn a_long_answer_equals_its_stream() {
    let sandbox = with_model(1 << 10, &[1]);
    let server = sandbox.serve("serve run");
    let body = |stream: bool| json!({ "model": "run", "prompt": "a", "temperature": 0, "max_tokens": 900, "logprobs": 5, "stream": stream });
    let whole = server.post("/v1/completions", &body(false));
    assert!(whole.body.len() > 64 << 10, "{} bytes", whole.body.len());
    let whole = whole.json()["choices"][0].clone();
    let streamed = server.post("/v1/completions", &body(true)).events();
    let deltas = streamed.iter().filter_map(|event| event["choices"].get(0));
    let text: String = deltas
        .clone()
        .filter_map(|delta| delta["text"].as_str())
        .collect();
    assert_eq!(whole["text"], text);
    let listed = |choice: &Value, name: &str| {
        choice["logprobs"][name]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        let joined: Vec<Value> = deltas
            .clone()
            .flat_map(|delta| listed(delta, name))
            .collect();
        assert_eq!(listed(&whole, name), joined, "{name}");
    }
}

/// A prompt of 1 MiB takes a moment to encode. Clients that have left are not waited for.
#[test]
fn texts_of_clients_that_have_left_are_not_encoded() {
    let sandbox = with_model(64, &[1]);
    let server = sandbox.serve("serve run --max-memory 256MiB");
    let long = json!({ "model": "run", "prompt": "a".repeat(1 << 20) }).to_string();
    for _ in 0..64 {
        drop(server.begin("POST", "/v1/completions", JSON, &long));
    }
    let short = json!({ "model": "run", "prompt": "a", "max_tokens": 1 });
    assert_eq!(server.post("/v1/completions", &short).status, 200);
    // Their memory is free again.
    let refused = |body: &str| {
        let answer = server.post_text("/v1/completions", body);
        answer.json()["error"]["code"].clone()
    };
    let begun = Instant::now();
    while refused(&long) != "context_length_exceeded" {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{}",
            refused(&long)
        );
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn deterministic_answers_do_not_depend_on_load() {
    let sandbox = with_model(256, &[1]);
    let server = sandbox.serve("serve run --slots 4 --deterministic");
    let ask = |n: u64| {
        let prompt: Vec<u64> = (0..n * 5 % 90 + 1).map(|i| (i * 7 + n % 3) % 256).collect();
        let body = json!({ "model": "run", "prompt": prompt, "max_tokens": 40, "seed": n, "n": n % 2 + 1, "logprobs": 1,
            "temperature": 1.5 });
        let answer = server.post("/v1/completions", &body).expect(200);
        answer.json()["choices"].clone()
    };
    let numbers: Vec<u64> = (0..24).collect();
    let answers = together(&numbers, |&n| ask(n));
    for (n, answer) in (0..).zip(answers) {
        assert_eq!(answer, ask(n), "request {n}");
    }
}
