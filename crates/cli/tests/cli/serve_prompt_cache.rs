//! `emberlm serve --cache-dir`: prompt caches that outlast the server.

use std::fs;
use std::path::PathBuf;

use emberlm_model::ModelConfig;
use emberlm_model::config::AttentionKind;
use serde_json::{Value, json};

use super::serve::ids;
use super::support::Sandbox;
use super::support::model::{tiny, write_run};
use super::support::server::Server;

/// The line in which most tests start the server.
/// Without draft tokens: they are chosen by measured times, and change the last bits of cached values.
const SERVE: &str = "serve run --cache-dir cache --slots 3 --draft-tokens 0";

/// A run with heads of 32 elements, a block of q8. `seed` is that of its weights.
fn with_run(seed: usize) -> Sandbox {
    let sandbox = Sandbox::with_text("hello small world\n".repeat(20), "byte");
    write(&sandbox, seed);
    sandbox
}

fn write(sandbox: &Sandbox, seed: usize) {
    let model = ModelConfig {
        seq_len: 128,
        d_model: 64,
        ..tiny(257)
    };
    let _ = fs::remove_dir_all(sandbox.path("run"));
    write_run(
        &sandbox.path("run"),
        &model,
        Some(&sandbox.spec("data")),
        &[seed],
    );
}

/// A prompt of 40 tokens that begins with `first`.
fn prompt(first: u32) -> Vec<u32> {
    (first..first + 40).collect()
}

/// The tokens of an answer, and the number of the prompt's tokens that were in a cache.
fn asked(server: &Server, prompt: &[u32]) -> (Vec<u64>, u64) {
    let body = json!({
        "model": "run", "prompt": prompt, "max_tokens": 20, "temperature": 1, "seed": 7, "return_token_ids": true,
    });
    let answer = server.post("/v1/completions", &body).expect(200).json();
    let cached = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
    (ids(&answer["choices"][0]), cached.as_u64().unwrap())
}

fn files(sandbox: &Sandbox) -> Vec<PathBuf> {
    let files = fs::read_dir(sandbox.path("cache")).unwrap();
    let mut files: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Starts the server with another destination for stderr, and stops it after one answer. Returns the answer and stderr.
fn answered(sandbox: &Sandbox, line: &str) -> ((Vec<u64>, u64), String) {
    let stderr = fs::File::create(sandbox.path("stderr")).unwrap();
    let server = sandbox.serve_with(line, stderr);
    let answer = asked(&server, &prompt(3));
    server.stop();
    (answer, sandbox.text("stderr"))
}

#[test]
fn a_prompt_is_cached_after_a_restart_and_has_the_same_answer() {
    let sandbox = with_run(1);
    for options in ["", "--cache f16", "--cache q8", "--deterministic"] {
        let line = format!("{SERVE} {options}");
        let server = sandbox.serve(&line);
        let (first, fresh) = asked(&server, &prompt(3));
        let (second, warm) = asked(&server, &prompt(3));
        assert_eq!(fresh, 0, "{options}");
        assert_eq!(second, first, "{options}");
        server.stop();
        let server = sandbox.serve(&line);
        let (restarted, cached) = asked(&server, &prompt(3));
        assert_eq!(restarted, first, "{options}");
        assert_eq!(cached, warm, "{options}");
        // A deterministic engine reuses whole chunks only, and this prompt is shorter than one.
        assert_eq!(cached > 0, options != "--deterministic", "{options}");
        let (other, cached) = asked(&server, &prompt(100));
        assert_eq!(cached, 0, "{options}");
        server.stop();
        let server = sandbox.serve(&line);
        assert_eq!(asked(&server, &prompt(100)), (other, warm), "{options}");
        // Another format of the caches deletes these files.
        assert_eq!(files(&sandbox).len(), 2, "{options}");
    }
}

#[test]
fn files_of_changed_models_are_deleted_and_damaged_ones_are_ignored() {
    let sandbox = with_run(1);
    let ((first, _), _) = answered(&sandbox, SERVE);
    let kept = files(&sandbox);
    assert_eq!(kept.len(), 1, "{kept:?}");
    let whole = fs::read(&kept[0]).unwrap();

    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let damaged = [
        (whole[..whole.len() / 2].to_vec(), "damaged or cut off"),
        (flipped, "damaged or cut off"),
        (b"{}".to_vec(), "not a prompt cache of this version"),
        (Vec::new(), "not a prompt cache of this version"),
    ];
    for (content, reason) in damaged {
        fs::write(&kept[0], content).unwrap();
        let ((tokens, cached), stderr) = answered(&sandbox, SERVE);
        assert_eq!((tokens, cached), (first.clone(), 0), "{stderr}");
        assert_eq!(stderr.matches("was deleted").count(), 1, "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
        // It is written again.
        assert!(fs::read(&kept[0]).unwrap() == whole, "{reason}");
    }
    for name in ["notes.txt", "notes.prompt-cache"] {
        fs::write(sandbox.path("cache").join(name), "mine").unwrap();
    }

    write(&sandbox, 2);
    let ((changed, cached), stderr) = answered(&sandbox, SERVE);
    assert_ne!(changed, first);
    assert_eq!(cached, 0);
    assert!(!stderr.contains("was deleted"), "{stderr}");
    assert!(!kept[0].exists(), "the file of the model before");
    assert_eq!(files(&sandbox).len(), 3, "{:?}", files(&sandbox));
    assert_eq!(sandbox.text("cache/notes.prompt-cache"), "mine");
}

#[test]
fn the_least_recently_used_files_are_deleted_beyond_the_limit() {
    let sandbox = with_run(1);
    let server = sandbox.serve(SERVE);
    for first in [3, 50, 100] {
        asked(&server, &prompt(first));
    }
    server.stop();
    let all = files(&sandbox);
    assert_eq!(all.len(), 3);
    let bytes = fs::metadata(&all[0]).unwrap().len();
    // The prompt that was used last stays, and a longer one that begins with it replaces it.
    let line = format!("{SERVE} --cache-size {}B", bytes * 3 / 2);
    let ((_, cached), _) = answered(&sandbox, &line);
    assert!(cached > 0);
    assert_eq!(files(&sandbox).len(), 1);
    let ((_, cached), _) = answered(&sandbox, &line);
    assert!(cached > 0);
    let server = sandbox.serve(&line);
    let (_, cached) = asked(&server, &prompt(50));
    assert_eq!(cached, 0);
}

#[test]
fn states_that_cannot_be_saved_are_left_out() {
    let sandbox = Sandbox::with_text("hello small world\n".repeat(20), "byte");
    let model = ModelConfig {
        seq_len: 128,
        attention: AttentionKind::Linear {
            features: Some(32),
            seed: 1,
        },
        ..tiny(257)
    };
    write_run(
        &sandbox.path("run"),
        &model,
        Some(&sandbox.spec("data")),
        &[1],
    );
    let (first, _) = answered(&sandbox, SERVE);
    assert!(files(&sandbox).is_empty());
    let (second, _) = answered(&sandbox, SERVE);
    assert_eq!(second, first);
}

#[test]
fn the_prompt_cache_of_an_adapter_is_not_that_of_its_base() {
    let sandbox = Sandbox::with_data();
    sandbox.trains("--data data --out base --set train.steps=1 --set model.seq_len=64");
    let line = "--from base --data data --adapter lora --set train.adapter.rank=2 --out lora --set train.steps=3";
    sandbox.trains(line);
    let line = "serve base lora --cache-dir cache --slots 3";
    let ask = |server: &Server, model: &str| -> Value {
        let body = json!({ "model": model, "prompt": [1, 4, 2, 9, 5, 3], "max_tokens": 5, "temperature": 0 });
        let answer = server.post("/v1/completions", &body).expect(200).json();
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].clone()
    };
    let server = sandbox.serve(line);
    assert_eq!(ask(&server, "lora"), 0);
    server.stop();
    let server = sandbox.serve(line);
    assert_eq!(ask(&server, "base"), 0);
    assert_ne!(ask(&server, "lora"), 0);
}
