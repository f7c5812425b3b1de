//! Changes of the file of `emberlm serve --config` while the server runs.

use std::fs::File;

use serde_json::{Value, json};

use super::serve::{generated, greedy, ids, with_model};
use super::serve_adapters::{answer, generated as adapted, with_adapters};
use super::support::server::Server;
use super::support::wait_until;

const A: &str = "[[model]]\npath = \"run\"\nname = \"a\"\n";
const B: &str = "[[model]]\npath = \"run\"\nname = \"b\"\nslots = 2\n";

/// The names in `/v1/models`.
fn names(server: &Server) -> Vec<String> {
    let models = server.json("/v1/models");
    let models = models["data"].as_array().unwrap().iter();
    let names = models.map(|model| model["id"].as_str().unwrap().to_owned());
    names.collect()
}

fn ask(server: &Server, model: &str) -> Value {
    let mut body = greedy(&[1, 2], 5);
    body["model"] = model.into();
    server.post("/v1/completions", &body).expect(200).json()
}

#[cfg(unix)]
#[test]
fn changed_models_are_loaded_and_removed() {
    let sandbox = with_model(64, &[1]);
    sandbox.write("serve.toml", A);
    let stderr = File::create(sandbox.path("stderr")).unwrap();
    let server = sandbox.serve_with("serve --config serve.toml --slots 3", stderr);
    let log = || sandbox.text("stderr");
    let expected = generated(&sandbox, &[1, 2], 5);
    let are = |expected: &[&str]| {
        wait_until(&format!("{expected:?}"), || names(&server) == expected);
    };
    let slots = |model: &str, count: usize| {
        let line = format!("emberlm_free_slots{{model=\"{model}\"}} {count}");
        wait_until(&line, || server.get("/metrics").body.contains(&line));
    };

    sandbox.write("serve.toml", format!("{A}{B}"));
    are(&["a", "b"]);
    assert_eq!(ids(&ask(&server, "b")["choices"][0]), expected);
    slots("b", 2);

    // The models stay as they are while the file is invalid, which is reported once.
    for (broken, reason) in [
        (format!("{A}[[model]]\nname = 5\n"), "invalid type"),
        (format!("{A}{A}"), "two models have the name"),
        (
            format!("{A}[[model]]\npath = \"none\"\n"),
            "no such model: none",
        ),
        (format!("{A}{B}context = 65\n"), "must be at most 64"),
    ] {
        sandbox.write("serve.toml", broken);
        wait_until(reason, || log().contains(reason));
        assert_eq!(names(&server), ["a", "b"]);
        assert_eq!(ids(&ask(&server, "b")["choices"][0]), expected);
    }

    // A model with other slots replaces the one before.
    sandbox.write("serve.toml", format!("{A}{}", B.replace("= 2", "= 5")));
    slots("b", 5);
    assert_eq!(names(&server), ["a", "b"]);
    assert_eq!(ids(&ask(&server, "b")["choices"][0]), expected);

    // Names and defaults of requests change without loading the model.
    let other =
        format!("{A}aliases = [\"gpt\"]\nsampling = {{ max_new_tokens = 3, temperature = 0 }}\n");
    sandbox.write("serve.toml", &other);
    are(&["a", "gpt"]);
    let body = json!({ "model": "gpt", "prompt": [1, 2], "return_token_ids": true });
    let answer = server.post("/v1/completions", &body).expect(200).json();
    assert_eq!(ids(&answer["choices"][0]), expected[..3]);
    wait_until("removed", || log().contains("b: removed"));
    server.stop();
    let count = |text| log().matches(text).count();
    // `a`, `b` and `b` with other slots.
    assert_eq!(count("parameters; slots"), 3, "{}", log());
    assert_eq!(count("the models stay as they are"), 4, "{}", log());
}

#[test]
fn a_base_model_and_its_adapters_are_added_together() {
    let sandbox = with_adapters();
    let table = |name: &str| format!("[[model]]\npath = \"{name}\"\n");
    let dora = table("dora");
    sandbox.write("serve.toml", &dora);
    let server = sandbox.serve("serve --config serve.toml");
    let all = format!("{dora}{}{}", table("base"), table("lora"));
    sandbox.write("serve.toml", &all);
    wait_until("all models", || names(&server) == ["dora", "base", "lora"]);
    let text = || server.get("/metrics").body;
    let engine = |name: &str| format!("emberlm_free_slots{{model=\"{name}\"}}");
    // A single adapter has its own engine.
    assert!(text().contains(&engine("dora")) && text().contains(&engine("base")));
    assert!(!text().contains(&engine("lora")), "{}", text());
    let found = answer(&server, "lora", "Hello")["choices"][0]["token_ids"].clone();
    assert_eq!(found, adapted(&sandbox, "base --adapter lora", "Hello"));
    sandbox.write("serve.toml", format!("{dora}{}", table("lora")));
    wait_until("no base", || names(&server) == ["dora", "lora"]);
    let again = answer(&server, "lora", "Hello")["choices"][0]["token_ids"].clone();
    assert_eq!(again, found);
    // A new name of an adapter keeps its engine.
    let named = format!("{dora}{}aliases = [\"l\"]\n", table("lora"));
    sandbox.write("serve.toml", named);
    wait_until("an alias", || names(&server) == ["dora", "lora", "l"]);
    let again = answer(&server, "l", "Hello")["choices"][0]["token_ids"].clone();
    assert_eq!(again, found);
}

#[test]
fn models_of_an_administrator_stay_when_the_file_changes() {
    let sandbox = with_model(64, &[1]);
    sandbox.write("serve.toml", A);
    sandbox.write("key", "sesame");
    let stderr = File::create(sandbox.path("stderr")).unwrap();
    let options = "--admin-key-file key --model-root .";
    let server = sandbox.serve_with(&format!("serve --config serve.toml {options}"), stderr);
    let headers = "content-type: application/json\r\nauthorization: Bearer sesame\r\n";
    let body = r#"{"path":"run","name":"mine"}"#;
    server
        .ask("POST", "/admin/models", headers, body)
        .expect(200);
    sandbox.write(
        "serve.toml",
        format!("{A}{}", B.replace("\"b\"", "\"mine\"")),
    );
    let reason = "a served model has the name or alias `mine`";
    wait_until(reason, || sandbox.text("stderr").contains(reason));
    sandbox.write("serve.toml", B);
    wait_until("b", || names(&server) == ["mine", "b"]);
    // A model that was removed comes back when its table changes.
    server
        .ask("DELETE", "/admin/models/b", headers, "")
        .expect(200);
    sandbox.write("serve.toml", format!("{A}{B}"));
    wait_until("a", || names(&server) == ["mine", "a"]);
    sandbox.write("serve.toml", format!("{A}{}", B.replace("= 2", "= 3")));
    wait_until("b again", || names(&server) == ["mine", "a", "b"]);
    assert_eq!(
        ids(&ask(&server, "b")["choices"][0]),
        generated(&sandbox, &[1, 2], 5)
    );
}
