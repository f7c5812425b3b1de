//! Clients of `emberlm serve` that do not read, send slowly or request too much: their resource use is
//! bounded, and other clients are served.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use emberlm_hostile::{EDGES, Field, Fill, Operation, operations};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use serde_json::{Value, json};

use super::serve::{greedy, ids, with_model};
use super::support::server::{Answer, Server};

const JSON: &str = "content-type: application/json\r\n";

/// A value of `/proc/PID/status` in bytes.
fn memory(server: &Server, name: &str) -> u64 {
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
fn chat(samples: usize, tokens: usize, stream: bool) -> Value {
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
    let answer = server.post("/v1/completions", &greedy(&[1, 2], 20));
    assert_eq!(answer.status, 200, "{}", answer.body);
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
    let answer = server.post("/v1/completions", &greedy(&[1, 2], 2));
    assert_eq!(answer.status, 200, "{}", answer.body);
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
    let answers: Vec<u16> = thread::scope(|scope| {
        let ask = || limited.post("/v1/embeddings", &texts).status;
        let asked: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        asked
            .into_iter()
            .map(|asked| asked.join().unwrap())
            .collect()
    });
    assert!(answers.contains(&504), "{answers:?}");
    limited.wait_for("emberlm_free_slots", "2");
    limited.wait_for("emberlm_waiting_requests", "0");
}

#[test]
fn memory_per_request_and_in_total_is_bounded() {
    let sandbox = with_model(1 << 13, &[1]);
    let server = sandbox.serve(
        "serve run --slots 64 --max-tokens 8000 --context 8192 --chat-template chatml --max-memory 300MiB",
    );
    let path = "/v1/chat/completions";
    let greedy_one = server.post(path, &chat(64, 4096, false));
    assert_eq!(greedy_one.status, 400, "{}", greedy_one.body);
    assert_eq!(greedy_one.json()["error"]["code"], "request_too_large");
    // A stream holds little memory.
    let streamed = server.begin("POST", path, JSON, &chat(64, 4096, true).to_string());
    server.wait_for("emberlm_running_sequences", "64");
    drop(streamed);
    server.wait_for("emberlm_free_slots", "64");
    let large = chat(5, 8000, false).to_string();
    let first = server.begin("POST", path, JSON, &large);
    server.wait_for("emberlm_running_sequences", "5");
    let second = server.post_text(path, &large);
    assert_eq!(second.status, 429, "{}", second.body);
    assert_eq!(server.post(path, &chat(1, 10, false)).status, 200);
    drop(first);
    server.wait_for("emberlm_free_slots", "64");
}

/// Concurrent clients of the attacks on fields.
const CLIENTS: usize = 8;
/// The size of a body that the limits below admit, whatever its values.
const ADMITTED: usize = 96 << 10;
/// The values in these bodies. The attack task has more.
const FILLS: [Fill; 6] = [
    Fill::Lists,
    Fill::Numbers,
    Fill::Names,
    Fill::Letters,
    Fill::DeepLists,
    Fill::Parts(0),
];
/// The size of a body whose lists take more than the limits below, 100 MB and more.
const LARGE: usize = 1 << 20;

/// The operations of a server that have a body.
fn operations_with_fields(server: &Server) -> Vec<Operation> {
    let known = json!({ "model": "run" });
    let operations = operations(&server.json("/openapi.json"), &known).unwrap();
    let with_fields = operations
        .into_iter()
        .filter(|operation| !operation.fields.is_empty());
    with_fields.collect()
}

/// The attacks read the description, so a path that it lacks would not be attacked.
#[test]
fn every_route_is_described() {
    let sandbox = with_model(16, &[1]);
    let description = sandbox.serve("serve run").json("/openapi.json");
    let source = include_str!("../../../serve/src/api.rs");
    let routes = source.split(".route(\"").skip(1);
    let paths: Vec<&str> = routes.filter_map(|rest| rest.split('"').next()).collect();
    assert!(paths.contains(&"/v1/completions"), "{paths:?}");
    for path in paths {
        assert!(description["paths"][path].is_object(), "{path}");
    }
}

/// Sends bodies at the same time and checks the answers.
fn attack(server: &Server, operation: &Operation, field: &Field, bodies: &[String]) {
    thread::scope(|scope| {
        for body in bodies {
            scope.spawn(move || {
                let answer = server.post_text(&operation.path, body);
                // An error does not quote long values of the request.
                assert!(answer.status == 200 || answer.body.len() < 8 << 10);
                if let Err(wrong) = operation.check(answer.status, &answer.body) {
                    panic!("{} {}: {wrong}", operation.name(), field.pointer);
                }
            });
        }
    });
}

/// Every field of every endpoint is filled in turn, with different values at the same time. The limit covers the requests; the
/// heaps of the threads may take as much again.
#[test]
fn memory_is_bounded_whichever_field_is_filled() {
    const LIMIT: u64 = 64 << 20;
    let sandbox = with_model(64, &[1]);
    let limits = format!("--max-memory {LIMIT} --max-request-memory 32MiB --max-queue 64");
    let server = sandbox.serve_returning_freed(&format!(
        "serve run --slots 4 --chat-template chatml {limits}"
    ));
    let operations = operations_with_fields(&server);
    for path in [
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/embeddings",
        "/api/play",
    ] {
        assert!(
            operations.iter().any(|operation| operation.path == path),
            "{path}"
        );
    }
    let usual = json!({ "model": "run", "prompt": [1, 2], "max_tokens": 20, "temperature": 0 });
    let expected = server.post("/v1/completions", &usual).json()["choices"].clone();
    let start = memory(&server, "VmHWM");
    for operation in &operations {
        for field in &operation.fields {
            let name = format!("{} {}", operation.name(), field.pointer);
            let lists = field.filled(Fill::Lists, LARGE);
            let answer = server.post_text(&operation.path, &lists);
            assert_eq!(answer.status, 400, "{name}: {}", answer.body);
            assert_eq!(
                answer.json()["error"]["code"],
                "request_too_large",
                "{name}"
            );
            let fills = field.fills().filter(|fill| FILLS.contains(fill));
            let mut bodies: Vec<String> = fills.map(|fill| field.filled(fill, ADMITTED)).collect();
            bodies.push(lists);
            attack(&server, operation, field, &bodies);
            let grown = memory(&server, "VmHWM") - start;
            assert!(grown < 2 * LIMIT, "{name}: {grown} bytes");
        }
    }
    assert_eq!(
        server.post("/v1/completions", &usual).json()["choices"],
        expected
    );
}

/// Extreme numbers, wrong types and invalid JSON in every field.
#[test]
fn edges_of_every_field_have_a_described_answer() {
    let sandbox = with_model(64, &[1]);
    let server = sandbox.serve("serve run --slots 4 --max-queue 64 --chat-template chatml");
    for operation in &operations_with_fields(&server) {
        for field in &operation.fields {
            let bodies = EDGES.map(|(_, value)| field.body(value));
            for bodies in bodies.chunks(CLIENTS) {
                attack(&server, operation, field, bodies);
            }
        }
    }
}

#[test]
fn a_text_far_beyond_the_context_is_refused_by_its_length() {
    let sandbox = with_model(64, &[1]);
    let server = sandbox.serve("serve run");
    let text = "a".repeat(1 << 20);
    for (path, field) in [("/v1/completions", "prompt"), ("/v1/embeddings", "input")] {
        let answer = server.post(path, &json!({ "model": "run", field: ["a", text] }));
        let error = answer.json()["error"].clone();
        assert_eq!(answer.status, 400, "{error}");
        assert_eq!(
            (&error["code"], &error["param"]),
            (&json!("context_length_exceeded"), &json!(field))
        );
        let message = "a text of at least 1048576 tokens is longer than this model's context of 64: shorten it";
        assert_eq!(error["message"], message);
    }
    let cut = json!({ "model": "run", "input": text, "truncate": true });
    assert_eq!(server.post("/v1/embeddings", &cut).status, 200);
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

/// Requests that people send: long conversations, many functions, and large inputs of embeddings.
#[test]
fn ordinary_large_requests_are_within_the_limits() {
    let sandbox = with_model(1 << 15, &[1]);
    let server = sandbox.serve("serve run --chat-template chatml --context 32768");
    let messages: Vec<Value> = (0..1000)
        .map(|n| json!({ "role": if n % 2 == 0 { "user" } else { "assistant" }, "content": "hi" }))
        .chain([json!({ "role": "user", "content": "?" })])
        .collect();
    let properties: serde_json::Map<String, Value> = (0..20)
        .map(|n| {
            (
                format!("p{n}"),
                json!({ "type": "string", "description": "d".repeat(100) }),
            )
        })
        .collect();
    let tools: Vec<Value> = (0..128)
        .map(|n| {
            let parameters = json!({ "type": "object", "properties": properties });
            json!({ "type": "function", "function": { "name": format!("f{n}"), "parameters": parameters } })
        })
        .collect();
    let body = json!({ "model": "run", "messages": messages, "max_tokens": 1, "tools": tools, "tool_choice": "none" });
    let answer = server.post("/v1/chat/completions", &body);
    let fits = |answer: &Answer| {
        let code = answer.json()["error"]["code"].clone();
        let limits = ["request_too_large", "body_too_large", "rate_limit_exceeded"];
        !limits.iter().any(|limit| code == *limit)
    };
    assert!(fits(&answer), "{}", answer.body);
    let sandbox = with_model(64, &[1]);
    let server = sandbox.serve("serve run");
    let texts = vec!["a".repeat(160_000); 64];
    let body = json!({ "model": "run", "input": texts, "truncate": true });
    let answer = server.post("/v1/embeddings", &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[test]
fn deterministic_answers_do_not_depend_on_load() {
    let sandbox = with_model(256, &[1]);
    let server = sandbox.serve("serve run --slots 4 --deterministic");
    let ask = |n: u64| {
        let prompt: Vec<u64> = (0..n * 5 % 90 + 1).map(|i| (i * 7 + n % 3) % 256).collect();
        let body = json!({ "model": "run", "prompt": prompt, "max_tokens": 40, "seed": n, "n": n % 2 + 1, "logprobs": 1,
            "temperature": 1.5 });
        let answer = server.post("/v1/completions", &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["choices"].clone()
    };
    let together: Vec<Value> = thread::scope(|scope| {
        let asked: Vec<_> = (0..24).map(|n| scope.spawn(move || ask(n))).collect();
        asked
            .into_iter()
            .map(|asked| asked.join().unwrap())
            .collect()
    });
    for (n, together) in (0..).zip(together) {
        assert_eq!(together, ask(n), "request {n}");
    }
}
