//! Models named by their names on the Hugging Face Hub. Downloads are tested in the crate `emberlm-hub`.

use std::fs;

use serde_json::Value;

use super::support::{AssertText, CommandOutput, Sandbox};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A run with a model, and the same model in the cache as `hf:org/tiny`.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::with_char_model().with_own_cache();
    let repository = "cache/huggingface/hub/models--org--tiny";
    let snapshot = format!("{repository}/snapshots/{COMMIT}");
    fs::create_dir_all(sandbox.path(&snapshot).parent().unwrap()).unwrap();
    sandbox.run(["export", "run", "--out", &snapshot]).ok();
    sandbox.write(&format!("{repository}/refs/main"), COMMIT);
    sandbox.write("run/events.jsonl", "");
    sandbox
}

/// Runs a command line that must not reach any server.
fn offline(sandbox: &Sandbox, line: &str) -> CommandOutput {
    let mut command = sandbox.command(line.split_whitespace());
    let output = command
        .env("HF_ENDPOINT", "http://127.0.0.1:1")
        .output()
        .unwrap();
    output.into()
}

#[test]
fn a_model_in_the_cache_is_used_by_its_name_and_without_the_network() {
    let sandbox = sandbox();
    let text = |model: &str| {
        offline(
            &sandbox,
            &format!("generate {model} --prompt he --max-new-tokens 8 --temperature 0"),
        )
        .ok()
    };
    let expected = text("run");
    for name in [
        "hf:org/tiny",
        "hf:org/tiny@main",
        &format!("hf:org/tiny@{COMMIT}"),
    ] {
        assert_eq!(text(name), expected, "{name}");
    }
    let info: Value = offline(&sandbox, "info hf:org/tiny --json").json();
    let snapshot = format!("cache/huggingface/hub/models--org--tiny/snapshots/{COMMIT}");
    let of_path: Value = offline(&sandbox, &format!("info {snapshot} --json")).json();
    assert_eq!(info["parameters"], of_path["parameters"]);
}

#[test]
fn a_served_model_has_the_name_of_its_repository() {
    let server = sandbox().serve("serve hf:org/tiny other=hf:org/tiny");
    let models = server.json("/v1/models");
    let names = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["tiny", "other"]);
}

#[test]
fn an_administrator_loads_a_model_by_its_name() {
    let sandbox = sandbox();
    sandbox.write("key", "sesame");
    let server = sandbox.serve("serve run --admin-key-file key --model-root hf:org/tiny");
    let headers = "content-type: application/json\r\nauthorization: Bearer sesame\r\n";
    let load = |name: &str| {
        let body = format!("{{\"path\":\"{name}\"}}");
        server.ask("POST", "/admin/models", headers, &body)
    };
    let loaded = load("hf:org/tiny").expect(200).json();
    assert_eq!(loaded["name"], "tiny");
    load("hf:org/other").expect(403);
}

#[test]
fn models_lists_the_cache_and_the_runs() {
    let sandbox = sandbox();
    let listed: Vec<Value> = offline(&sandbox, "models . --json").json();
    let mut names: Vec<&str> = listed
        .iter()
        .map(|model| model["model"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["./run", "hf:org/tiny"]);
    for model in &listed {
        assert!(model["bytes"].as_u64().unwrap() > 1000, "{model}");
    }
    let shown = offline(&sandbox, "models .").ok();
    shown.assert_has("hf:org/tiny  ");

    let snapshot = format!("cache/huggingface/hub/models--org--tiny/snapshots/{COMMIT}");
    fs::remove_file(sandbox.path(format!("{snapshot}/model.safetensors"))).unwrap();
    let shown = offline(&sandbox, "models .").ok();
    shown.assert_has("incomplete: the repository has no weights");
}

#[test]
fn mistaken_names_and_missing_models_are_explained() {
    let sandbox = sandbox();
    let refused = |line: &str, variable: Option<&str>| {
        let mut command = sandbox.command(line.split_whitespace());
        if let Some(variable) = variable {
            command.env(variable, "1");
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}");
        String::from_utf8(output.stderr).unwrap()
    };
    let error = refused("generate hf:org/../tiny", None);
    error.assert_has("error: `hf:org/../tiny`: ");
    error.assert_has("hint: for example: hf:");
    let error = refused("generate hf:org/none", Some("HF_HUB_OFFLINE"));
    error.assert_has("hf:org/none is not in the cache");
    let error = refused("generate hf:org/tiny/x.gguf", Some("HF_HUB_OFFLINE"));
    error.assert_has("the repository has no x.gguf");
    let error = refused("pull run", None);
    error.assert_has("`run`: must begin with hf:");
}

#[test]
fn names_without_hf_and_a_hub_that_cannot_be_reached_are_explained() {
    let sandbox = sandbox();
    let error = offline(&sandbox, "generate hf:org/none --prompt a").stderr;
    error.assert_has("error: cannot reach http://127.0.0.1:1: ");
    error.assert_has("hint: check the network connection");
    error.assert_lacks("run the command again");
    for line in [
        "generate org/tiny --prompt a",
        "info org/tiny",
        "embed org/tiny corpus.txt",
        "generate run --prompt a --adapter org/tiny",
    ] {
        let error = offline(&sandbox, line).stderr;
        assert!(error.contains("hf:org/tiny"), "{line}: {error}");
    }
    let error = offline(&sandbox, "pull https://huggingface.co/org/tiny").stderr;
    error.assert_has("the name of a model on the Hub: hf:org/tiny");
    // The folder is there, so this is the path of another run.
    let error = offline(&sandbox, "generate cache/other --prompt a").stderr;
    error.assert_lacks("hf:");
}
