//! `emberlm watch`, queried through the requests of its page.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::Command;

use serde_json::{Value, json};

use super::support::server::Server;
use super::support::{AssertText, Sandbox};

fn step(step: usize, loss: f64) -> String {
    let event = json!({ "event": "step", "step": step, "tokens": 10 * step, "loss": loss, "perplexity": 1.0,
        "gradient_norm": 1.0, "learning_rate": 0.1 });
    format!("{event}\n")
}

fn events(server: &Server, run: &str, from: Option<&Value>) -> Value {
    let place = from.map_or(String::new(), |from| {
        let file = from["file"].as_str().unwrap();
        format!("&file={file}&offset={}", from["offset"])
    });
    server.json(&format!("/api/events?run={run}{place}"))
}

fn losses(answer: &Value) -> Vec<f64> {
    let events = answer["events"].as_array().unwrap().iter();
    events.filter_map(|event| event["loss"].as_f64()).collect()
}

#[test]
fn a_run_is_followed_as_it_is_written() {
    let sandbox = Sandbox::new();
    sandbox.write("runs/a/config.toml", "");
    sandbox.write("runs/a/events.jsonl", step(1, 4.0) + &step(2, 3.5));
    sandbox.write("runs/sweep/b/config.toml", "");
    let server = sandbox.serve("watch");
    let listed = server.json("/api/runs");
    assert_eq!(
        listed["runs"],
        json!([
            { "name": "a", "sweep": null, "status": "interrupted", "tags": [], "note": "" },
            { "name": "b", "sweep": null, "status": "interrupted", "tags": [], "note": "" },
        ])
    );
    assert!(listed["machine"]["memory"].as_u64().unwrap() > 1 << 27);
    let metrics = server.json("/api/metrics");
    assert_eq!(
        metrics[0],
        json!({ "name": "loss", "title": "Loss", "unit": "nats per token", "direction": "lower_is_better",
            "aggregation": "mean", "phase": "both", "scale": 1.0 })
    );

    let first = events(&server, "a", None);
    assert_eq!(losses(&first), [4.0, 3.5]);
    assert_eq!(losses(&events(&server, "b", None)), [0.0; 0]);
    let path = sandbox.path("runs/a/events.jsonl");
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    let line = step(3, 3.0);
    let (begun, rest) = line.split_at(20);
    file.write_all(begun.as_bytes()).unwrap();
    assert_eq!(losses(&events(&server, "a", Some(&first))), [0.0; 0]);
    file.write_all(rest.as_bytes()).unwrap();
    let second = events(&server, "a", Some(&first));
    assert_eq!(losses(&second), [3.0]);
    // Replaces the file, as resuming a run does.
    sandbox.write("other", step(1, 4.0) + &step(2, 2.5));
    fs::rename(sandbox.path("other"), &path).unwrap();
    let third = events(&server, "a", Some(&second));
    assert_eq!(losses(&third), [4.0, 2.5]);
    assert_ne!(third["file"], second["file"]);
    // A new run of a sweep in progress.
    sandbox.write("runs/sweep/c/config.toml", "");
    let names = server.json("/api/runs");
    assert_eq!(names["runs"][2]["name"], "c");
}

#[test]
fn the_page_shows_the_events_unchanged() {
    let sandbox = Sandbox::with_data();
    sandbox.trains("--data data --out run --steps 3");
    let server = sandbox.serve("watch run");
    assert_eq!(
        server.json("/api/runs")["runs"],
        json!([{ "name": "run", "sweep": null, "status": "finished", "tags": [], "note": "" }])
    );
    let shown = events(&server, "run", None)["events"].clone();
    let text = sandbox.text("run/events.jsonl");
    let written: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(shown, Value::from(written));
}

#[test]
fn runs_have_their_sweep_their_labels_and_their_settings() {
    let sandbox = Sandbox::new();
    let config = "data = \"d\"\n[train]\nsteps = 7\n[train.schedule]\nlearning_rate = 1e-3\n";
    sandbox.write("runs/rates/a/config.toml", config);
    sandbox.write("runs/rates/sweep.json", "{}");
    sandbox.write(
        "runs/rates/a/labels.json",
        "{\"tags\":[\"x\"],\"note\":\"<b>\"}",
    );
    sandbox.write("runs/b/labels.json", "damaged");
    sandbox.write("runs/b/config.toml", "");
    let server = sandbox.serve("watch");
    assert_eq!(
        server.json("/api/runs")["runs"],
        json!([
            { "name": "b", "sweep": null, "status": "interrupted", "tags": [], "note": "" },
            { "name": "a", "sweep": "rates", "status": "interrupted", "tags": ["x"], "note": "<b>" },
        ])
    );
    assert_eq!(
        server.json("/api/settings?run=a"),
        json!({ "settings": { "data": "d", "train.schedule.learning_rate": 1e-3, "train.steps": 7 } })
    );
    assert_eq!(
        server.json("/api/settings?run=b"),
        json!({ "settings": {} })
    );
    assert_eq!(server.get("/api/settings?run=..%2Fb").status, 404);
}

#[test]
fn the_page_is_self_contained_and_restricted_by_csp() {
    let sandbox = Sandbox::new();
    sandbox.write("runs/a/config.toml", "");
    let server = sandbox.serve("watch");
    let page = server.get("/");
    page.headers.assert_has("content-type: text/html");
    let policy = "content-security-policy: default-src 'none'; script-src 'self';";
    page.headers.assert_has(policy);
    for name in [
        "watch.css",
        "watch.js",
        "chart.js",
        "limits.js",
        "norms.js",
        "runs.js",
        "style.js",
        "table.js",
    ] {
        assert_eq!(server.get(&format!("/{name}")).status, 200, "{name}");
    }
    for name in page.body.split("src=\"").skip(1) {
        let name = name.split('"').next().unwrap();
        assert_eq!(server.get(&format!("/{name}")).status, 200, "{name}");
    }
}

#[test]
fn only_runs_can_be_requested() {
    let sandbox = Sandbox::new();
    sandbox.write("runs/a/config.toml", "");
    sandbox.write("secret/events.jsonl", step(1, 4.0));
    let server = sandbox.serve("watch");
    for run in ["..%2Fsecret", "../secret", "secret", "", "%00", "a/.."] {
        let answer = server.get(&format!("/api/events?run={run}"));
        assert_eq!(answer.status, 404, "{run}: {}", answer.body);
    }
    server.get("/api/events").expect(400);
    server.get("/api/events?run=a&offset=-1").expect(400);
    assert_eq!(server.get("/etc/passwd").status, 404);
    assert_eq!(server.get("/../runs/a/config.toml").status, 404);
}

#[cfg(unix)]
#[test]
fn a_signal_stops_the_server() {
    let sandbox = Sandbox::new();
    sandbox.write("runs/a/config.toml", "");
    for signal in ["-INT", "-TERM"] {
        let server = sandbox.serve("watch runs/a");
        let id = server.id().to_string();
        Command::new("kill").args([signal, &id]).status().unwrap();
        assert_eq!(server.ended(), Some(0), "{signal}");
    }
}

#[test]
fn invalid_watch_arguments_are_rejected() {
    let sandbox = Sandbox::new();
    sandbox.write("runs/a/config.toml", "");
    let first = sandbox.serve("watch runs");
    let port = first.port();
    let ran = sandbox.fails(&format!("watch runs --port {port}"));
    let expected = format!("error: cannot listen on 127.0.0.1:{port}: Address already in use");
    assert!(ran.stderr.starts_with(&expected), "{ran}");
    ran.says("hint: choose another port; --port 0");
}
