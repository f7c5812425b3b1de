//! The documentation's reference pages match the program.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::serve::with_model;
use super::support::Sandbox;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference");

fn page(name: &str) -> String {
    fs::read_to_string(format!("{FOLDER}/{name}.md")).unwrap()
}

#[test]
fn generated_pages_match_the_program() {
    let sandbox = Sandbox::new();
    for name in ["commands", "configuration", "metrics", "http-api", "files"] {
        let generated = sandbox.ok(&format!("reference {name}"));
        assert!(
            generated == page(name),
            "docs/reference/{name}.md is stale: run `cargo xtask reference`"
        );
    }
}

#[test]
fn http_api_page_lists_every_path_field_and_status() {
    let sandbox = with_model(16, &[1]);
    let description = sandbox.serve("serve run").json("/openapi.json");
    let page = page("http-api");
    let mut missing = BTreeSet::new();
    for (path, operations) in description["paths"].as_object().unwrap() {
        let (method, operation) = operations.as_object().unwrap().iter().next().unwrap();
        // Paths that share a row omit the method, except the first one.
        let with_method = format!("`{} {path}`", method.to_uppercase());
        if !page.contains(&with_method) && !page.contains(&format!("`{path}`")) {
            missing.insert(with_method);
        }
        let body = &operation["requestBody"]["content"]["application/json"]["schema"];
        for field in body["properties"].as_object().into_iter().flatten() {
            // A field is listed by its name or together with its supported member.
            if !page.contains(&format!("`{}`", field.0))
                && !page.contains(&format!("`{}.", field.0))
            {
                missing.insert(format!("{path}: `{}`", field.0));
            }
        }
        for status in operation["responses"].as_object().unwrap().keys() {
            if status != "200"
                && !page.contains(&format!("| {status} |"))
                && !page.contains(&format!("| {status}, "))
            {
                missing.insert(format!("status {status}"));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "docs/reference/http-api.md lacks {missing:#?}"
    );
}

/// Collects the names of all files in a folder and its subfolders.
fn file_names(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => file_names(&entry.path(), names),
            false => drop(names.insert(entry.file_name().into_string().unwrap())),
        }
    }
}

#[test]
fn files_page_lists_every_file_and_event_field() {
    let sandbox = Sandbox::with_data();
    sandbox.trains("--data data --steps 8 --out run --set train.log_interval=1 --set train.evaluation.interval=4 \
             --set train.checkpoints.interval=4 --set train.ema=0.9");
    let page = page("files");
    // The table of events; other files have fields with the names of events.
    let (_, events) = page.split_once("## Events").unwrap();
    let mut missing = BTreeSet::new();
    let mut names = BTreeSet::new();
    for folder in ["data", "run"] {
        file_names(&sandbox.path(folder), &mut names);
    }
    for name in names {
        let listed = page.contains(&format!("`{name}`"));
        // Shards, samples and TensorBoard files are listed by folder or extension.
        if !listed && !name.ends_with(".bin") && !name.ends_with(".txt") {
            missing.insert(name);
        }
    }
    let log = sandbox.text("run/events.jsonl");
    let mut kinds = BTreeSet::new();
    for line in log.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let kind = event["event"].as_str().unwrap().to_owned();
        let row = events
            .lines()
            .find(|row| row.starts_with(&format!("| `{kind}` |")));
        for field in event.as_object().unwrap().keys() {
            let listed = row.is_some_and(|row| row.contains(&format!("`{field}`")));
            if !listed && field != "event" && field != "n" {
                missing.insert(format!("{kind}: {field}"));
            }
        }
        kinds.insert(kind);
    }
    for kind in [
        "step",
        "evaluation",
        "sample",
        "begun",
        "pace",
        "checkpoint",
        "ended",
    ] {
        assert!(kinds.contains(kind), "no `{kind}` event: {kinds:?}");
    }
    assert!(
        missing.is_empty(),
        "docs/reference/files.md lacks {missing:#?}"
    );
}
