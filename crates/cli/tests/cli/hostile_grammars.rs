//! Grammars designed to exhaust a server's memory, stack or threads.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};

use super::serve::with_model;
use super::support::Sandbox;
use super::support::server::{Answer, Server};

/// Additional address space for a server under attack.
const MEMORY: u64 = 1200 << 20;
/// The time limit for other requests on a busy machine. Without a separate queue, hostile grammars delayed
/// them by 40 s on an idle one.
const SOON: Duration = Duration::from_secs(30);

/// Starts a server with a memory limit, so that an attack crashes the server instead of the machine.
fn limited_server(sandbox: &Sandbox, line: &str) -> Server {
    let server = sandbox.serve(line);
    let sizes = fs::read_to_string(format!("/proc/{}/statm", server.id())).unwrap();
    let pages: u64 = sizes.split(' ').next().unwrap().parse().unwrap();
    let most = Some(4096 * pages + MEMORY);
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    let process = Pid::from_raw(server.id() as i32).unwrap();
    prlimit(Some(process), Resource::As, limit).unwrap();
    server
}

fn properties(count: usize) -> Value {
    let properties = (0..count).map(|at| (format!("p{at}"), json!({})));
    Value::Object(properties.collect())
}

fn chain_of_references(length: usize) -> Value {
    let mut definitions: serde_json::Map<_, _> = (0..length)
        .map(|at| {
            (
                format!("d{at}"),
                json!({"$ref": format!("#/$defs/d{}", at + 1)}),
            )
        })
        .collect();
    definitions.insert(format!("d{length}"), json!({"type": "string"}));
    json!({"$ref": "#/$defs/d0", "$defs": definitions})
}

fn hostile_schemas() -> Vec<Value> {
    let required: Vec<String> = (0..30_000).map(|at| format!("p{at}")).collect();
    vec![
        chain_of_references(4000),
        json!({"type": "object", "properties": properties(7000), "additionalProperties": false}),
        json!({"type": "object", "properties": properties(30_000), "required": required}),
        json!({"type": "string", "pattern": "a?".repeat(20_000)}),
    ]
}

fn hostile_expressions() -> Vec<String> {
    let mut all: Vec<String> = ["a?", "a*", ".?", "(?:a|)"]
        .iter()
        .map(|it| it.repeat(40_000))
        .collect();
    all.push("a?".repeat(20_000));
    // These are neither long nor optional, so only the sandbox detects them.
    all.push(r"\pL".repeat(80_000));
    all.push("((a{1,50}){1,50}){1,50}".to_owned());
    all
}

fn completion(structured_outputs: &Value) -> Value {
    json!({"model": "run", "prompt": "a", "max_tokens": 2, "structured_outputs": structured_outputs})
}

fn completes(server: &Server, structured_outputs: &Value) {
    server
        .post("/v1/completions", &completion(structured_outputs))
        .expect(200);
}

#[track_caller]
fn assert_refused(answer: &Answer) {
    let error = &answer.json()["error"];
    assert_eq!(answer.status, 400, "{}", answer.body);
    let param = error["param"].as_str().unwrap_or_default();
    assert!(
        ["response_format", "structured_outputs"].contains(&param),
        "{}",
        answer.body
    );
    assert!(answer.body.len() < 1000, "{}", answer.body);
}

#[test]
fn hostile_grammars_do_not_crash_the_server() {
    let sandbox = with_model(64, &[1]);
    let server = limited_server(
        &sandbox,
        "serve run --slots 2 --max-body 4MiB --chat-template chatml",
    );
    for schema in hostile_schemas() {
        let structured = json!({"json": schema});
        assert_refused(&server.post("/v1/completions", &completion(&structured)));
        let play = json!({"model": "run", "prompt": "a", "structured_outputs": structured});
        assert_refused(&server.post("/api/play", &play));
        let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
        let chat = json!({
            "model": "run", "messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "response_format": format,
        });
        assert_refused(&server.post("/v1/chat/completions", &chat));
    }
    for expression in hostile_expressions() {
        let structured = json!({"regex": expression});
        assert_refused(&server.post("/v1/completions", &completion(&structured)));
    }
    completes(&server, &json!({"regex": "[a-z]+"}));
    completes(
        &server,
        &json!({"json": {"type": "object", "properties": properties(200)}}),
    );
    completes(&server, &json!({"json": chain_of_references(50)}));
}

#[test]
fn hostile_grammars_do_not_keep_others_waiting() {
    let sandbox = with_model(64, &[1]);
    let server = limited_server(&sandbox, "serve run --slots 2");
    completes(&server, &json!({"regex": "[a-z]+"}));
    let hostile: Vec<TcpStream> = (0..12)
        .map(|at| {
            let expression = format!("{}{at}", r"\pL".repeat(80_000));
            let body = completion(&json!({"regex": expression})).to_string();
            server.begin(
                "POST",
                "/v1/completions",
                "content-type: application/json\r\n",
                &body,
            )
        })
        .collect();
    // Wait until the hostile requests are being processed.
    thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    server
        .post(
            "/v1/completions",
            &json!({"model": "run", "prompt": "a b c", "max_tokens": 2}),
        )
        .expect(200);
    completes(&server, &json!({"regex": "[a-z]+"}));
    completes(&server, &json!({"regex": "[0-9]+"}));
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    for mut stream in hostile {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_refused(&Answer::new(&text));
    }
}

#[test]
fn generate_rejects_hostile_grammars() {
    let sandbox = with_model(64, &[1]);
    sandbox.write("chain.json", chain_of_references(4000).to_string());
    let optional = json!({"type": "object", "properties": properties(7000)});
    sandbox.write("optional.json", optional.to_string());
    let letters = json!({"type": "string", "pattern": r"\pL".repeat(80_000)});
    sandbox.write("letters.json", letters.to_string());
    for (options, field) in [
        (vec!["--json-schema", "chain.json"], "json_schema"),
        (vec!["--json-schema", "optional.json"], "json_schema"),
        (vec!["--regex", &"a?".repeat(20_000)], "regex"),
        (vec!["--json-schema", "letters.json"], "json_schema"),
    ] {
        let common = ["generate", "run", "--prompt", "a", "--max-new-tokens", "2"];
        let ran = sandbox.run(common.iter().chain(&options));
        assert!(
            matches!(ran.code, Some(1 | 2)),
            "{:?}: {}",
            ran.code,
            ran.stderr
        );
        // The machine's speed decides which limit is reached first.
        let refusal = format!("error: {field} = ");
        assert!(ran.stderr.starts_with(&refusal), "{}", ran.stderr);
    }
    sandbox.ok("generate run --prompt a --max-new-tokens 2 --regex [a-z]+");
}
