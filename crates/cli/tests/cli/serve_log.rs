//! The request log of `emberlm serve`.

use std::fs::File;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::serve::with_model;
use super::support::server::Server;
use super::support::{AssertText, Sandbox};

/// A server with its stderr redirected to the file `log`.
fn logged(sandbox: &Sandbox, line: &str) -> Server {
    let log = File::create(sandbox.path("log")).unwrap();
    sandbox.serve_with(line, log)
}

/// Waits for a log line that contains `text`. Returns it and all lines so far.
fn line_with(sandbox: &Sandbox, text: &str) -> (String, String) {
    let start = Instant::now();
    loop {
        let mut log = sandbox.text("log");
        // The last line may be unfinished.
        log.truncate(log.rfind('\n').map_or(0, |end| end + 1));
        if let Some(line) = log.lines().find(|line| line.contains(text)) {
            return (line.to_owned(), log);
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{text}:\n{log}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn prompt(stream: bool) -> Value {
    json!({ "model": "other", "prompt": "sesame", "max_tokens": 5, "stream": stream, "logit_bias": { "256": -100 } })
}

#[cfg(unix)]
#[test]
fn a_request_logs_one_line_without_its_prompt() {
    let sandbox = with_model(64, &[1]);
    let server = logged(&sandbox, "serve run --alias other");
    for stream in [false, true] {
        assert_eq!(server.post("/v1/completions", &prompt(stream)).status, 200);
    }
    server.post("/v1/completions", &json!({ "model": "run", "prompt": 5 }));
    server.get("/nothing?key=sesame");
    server.post("/v1/embeddings", &json!({ "model": "run", "input": "abc" }));
    let (line, _) = line_with(&sandbox, "\"POST /v1/completions\" 200 ");
    line.assert_has(" 127.0.0.1:");
    line.assert_has(" model=run prompt=6 completion=5 queue=");
    line_with(&sandbox, "\"POST /v1/completions\" 400 ");
    line_with(&sandbox, "\"GET /nothing\" 404 total=");
    let (line, _) = line_with(&sandbox, "\"POST /v1/embeddings\" 200 ");
    line.assert_has(" model=run prompt=3 completion=0 queue=");
    server.stop();
    let log = sandbox.text("log");
    assert_eq!(log.matches("\"POST /v1/completions\" 200 ").count(), 2);
    log.assert_lacks("sesame");
}

#[test]
fn requests_rejected_for_host_or_origin_are_logged() {
    let sandbox = with_model(64, &[1]);
    let server = logged(&sandbox, "serve run");
    server
        .raw("GET /host HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n")
        .expect(403);
    server
        .ask("GET", "/origin", "origin: http://evil.example\r\n", "")
        .expect(403);
    let (line, _) = line_with(&sandbox, "\"GET /host\" 403 total=");
    line.assert_has(" 127.0.0.1:");
    line_with(&sandbox, "\"GET /origin\" 403 total=");
}

#[test]
fn requests_can_be_logged_as_json() {
    let sandbox = with_model(64, &[1]);
    let server = logged(
        &sandbox,
        "serve run --alias other --log bodies --log-format json",
    );
    let mut body = prompt(true);
    body["prompt"] = "a\u{1b}]0;b\u{9b}\u{202e}c".into();
    assert_eq!(server.post("/v1/completions", &body).status, 200);
    let (line, log) = line_with(&sandbox, "/v1/completions");
    let record: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&record["status"], &record["model"]),
        (&json!(200), &json!("run"))
    );
    assert_eq!(record["completion_tokens"], 5);
    assert!(record["queue_seconds"].as_f64() <= record["total_seconds"].as_f64());
    let kept: Value = serde_json::from_str(record["body"].as_str().unwrap()).unwrap();
    assert_eq!(kept, body);
    // The log contains no terminal control characters.
    let harmful = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!log.contains(harmful), "{log:?}");
}

#[test]
fn fields_without_effect_are_logged_on_request() {
    let sandbox = with_model(64, &[1]);
    let body = json!({ "model": "run", "prompt": "a", "max_tokens": 1, "store": true, "user": "sesame", "priority": 3,
        "n_keep": null, "suffix": "" });
    for (options, expected) in [
        ("", None),
        (" --verbose", Some(" ignored=store,user,priority")),
    ] {
        let server = logged(&sandbox, &format!("serve run{options}"));
        server.post("/v1/completions", &body).expect(200);
        let (line, log) = line_with(&sandbox, "\"POST /v1/completions\" 200 ");
        match expected {
            None => line.assert_lacks("ignored"),
            Some(fields) => assert!(line.ends_with(fields), "{line}"),
        }
        log.assert_lacks("sesame");
    }
    let server = logged(&sandbox, "serve run -v --log-format json");
    server.post("/v1/completions", &body).expect(200);
    let (line, _) = line_with(&sandbox, "/v1/completions");
    let record: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(record["ignored"], json!(["store", "user", "priority"]));
}

#[cfg(unix)]
#[test]
fn disconnects_are_logged_and_the_log_can_be_disabled() {
    let sandbox = with_model(1 << 14, &[1]);
    let server = logged(
        &sandbox,
        "serve run --slots 1 --max-tokens 16000 --context 16384",
    );
    let long = json!({ "model": "run", "prompt": "a", "max_tokens": 16000, "logit_bias": { "256": -100 } });
    let kind = "content-type: application/json\r\n";
    let asked = server.begin("POST", "/v1/completions", kind, &long.to_string());
    server.wait_for("emberlm_running_sequences", "1");
    drop(asked);
    let (line, _) = line_with(&sandbox, "\"POST /v1/completions\" - model=run prompt=1 ");
    line.assert_lacks("completion=16000");
    drop(server);
    let server = logged(&sandbox, "serve run --log none");
    server.get("/nothing");
    server.get("/health");
    server.stop();
    let log = sandbox.text("log");
    log.assert_lacks("/nothing");
}

#[cfg(unix)]
#[test]
fn a_blocked_stderr_delays_neither_responses_nor_shutdown() {
    let sandbox = with_model(64, &[1]);
    let server = sandbox.serve_with("serve run", Stdio::piped());
    // More than a pipe and the log's queue can hold.
    let path = format!("/{}", "x".repeat(250));
    for _ in 0..1600 {
        assert_eq!(server.get(&path).status, 404);
    }
    server
        .post(
            "/v1/completions",
            &json!({ "model": "run", "prompt": "a", "max_tokens": 2 }),
        )
        .expect(200);
    let id = server.id().to_string();
    let start = Instant::now();
    Command::new("kill").args(["-TERM", &id]).status().unwrap();
    assert_eq!(server.ended(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(20));
}
