//! Large and hostile values in every field of `emberlm serve`: memory is bounded, and the answers are described.

use std::thread;

use emberlm_hostile::{EDGES, Field, Fill, Operation, operations};
use serde_json::{Value, json};

use super::serve::with_model;
use super::serve_attacks::{JSON, chat, memory};
use super::support::server::{Answer, Server};

#[test]
fn memory_per_request_and_in_total_is_bounded() {
    let sandbox = with_model(1 << 13, &[1]);
    let server = sandbox.serve(
        "serve run --slots 64 --max-tokens 8000 --context 8192 --chat-template chatml --max-memory 300MiB",
    );
    let path = "/v1/chat/completions";
    let greedy_one = server.post(path, &chat(64, 4096, false)).expect(400);
    assert_eq!(greedy_one.json()["error"]["code"], "request_too_large");
    // A stream holds little memory.
    let streamed = server.begin("POST", path, JSON, &chat(64, 4096, true).to_string());
    server.wait_for("emberlm_running_sequences", "64");
    drop(streamed);
    server.wait_for("emberlm_free_slots", "64");
    let large = chat(5, 8000, false).to_string();
    let first = server.begin("POST", path, JSON, &large);
    server.wait_for("emberlm_running_sequences", "5");
    server.post_text(path, &large).expect(429);
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

/// The option by which requests with [`ADMIN`] may load models, from no folder.
const ADMIN_OPTION: &str = "--admin-key-file key";
/// The header of an administrator.
const ADMIN: &str = "authorization: Bearer admin\r\n";

fn post(server: &Server, operation: &Operation, body: &str) -> Answer {
    server.ask("POST", &operation.path, &format!("{JSON}{ADMIN}"), body)
}

/// Sends bodies at the same time and checks the answers.
fn attack(server: &Server, operation: &Operation, field: &Field, bodies: &[String]) {
    thread::scope(|scope| {
        for body in bodies {
            scope.spawn(move || {
                let answer = post(server, operation, body);
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
    sandbox.write("key", "admin");
    let limits = format!("--max-memory {LIMIT} --max-request-memory 32MiB --max-queue 64");
    let server = sandbox.serve_returning_freed(&format!(
        "serve run --slots 4 --chat-template chatml {limits} {ADMIN_OPTION}"
    ));
    let operations = operations_with_fields(&server);
    for path in [
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/embeddings",
        "/admin/models",
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
            let answer = post(&server, operation, &lists);
            assert_eq!(answer.status, 400, "{name}: {}", answer.body);
            // Errors of the other dialects have no code.
            let reason = "the request and its answers may take";
            assert!(answer.body.contains(reason), "{name}: {}", answer.body);
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
    sandbox.write("key", "admin");
    let server = sandbox.serve(&format!(
        "serve run --slots 4 --max-queue 64 --chat-template chatml {ADMIN_OPTION}"
    ));
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
    server.post("/v1/embeddings", &body).expect(200);
}
