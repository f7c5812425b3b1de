//! An administrator loads and removes models of a running `emberlm serve`.

use std::fs;
use std::io::Read;

use serde_json::{Value, json};

use super::serve::{generated, greedy, ids, with_model};
use super::serve_adapters::{self, with_adapters};
use super::serve_attacks::JSON;
use super::support::model::{tiny, write_run};
use super::support::server::{Answer, Server};
use super::support::{Sandbox, wait_until};

/// The options of a server with an administrator, who may load models from the whole sandbox.
const OPTIONS: &str = "--admin-key-file admin-key --model-root .";

fn serve(sandbox: &Sandbox, line: &str) -> Server {
    sandbox.write("admin-key", "sesame\n");
    sandbox.serve(&format!("serve {line}"))
}

/// A request with the administrator's key.
fn admin(server: &Server, method: &str, path: &str, body: &str) -> Answer {
    let headers = format!("{JSON}authorization: Bearer sesame\r\n");
    server.ask(method, path, &headers, body)
}

fn load(server: &Server, body: Value) -> Answer {
    admin(server, "POST", "/admin/models", &body.to_string())
}

fn remove(server: &Server, name: &str) -> Answer {
    admin(server, "DELETE", &format!("/admin/models/{name}"), "")
}

fn code(answer: &Answer) -> Value {
    answer.json()["error"]["code"].clone()
}

/// The names in `/v1/models`.
fn names(server: &Server) -> Vec<String> {
    let models = server.json("/v1/models");
    let models = models["data"].as_array().unwrap().iter();
    let names = models.map(|model| model["id"].as_str().unwrap().to_owned());
    names.collect()
}

fn of(model: &str, mut body: Value) -> Value {
    body["model"] = model.into();
    body
}

#[test]
fn a_model_is_loaded_and_removed() {
    let sandbox = with_model(64, &[1]);
    let server = serve(&sandbox, &format!("run {OPTIONS}"));
    let entry = json!({ "path": "run", "name": "b", "aliases": ["c"], "slots": 2, "sampling": { "temperature": 0 } });
    let added = load(&server, entry).expect(200).json();
    assert_eq!((&added["name"], &added["slots"]), (&json!("b"), &json!(2)));
    assert!(added["memory"].as_u64().unwrap() > 0, "{added}");
    assert_eq!(names(&server), ["run", "b", "c"]);
    let expected = generated(&sandbox, &[1, 2, 3], 20);
    for name in ["b", "c", "run"] {
        let answer = server.post("/v1/completions", &of(name, greedy(&[1, 2, 3], 20)));
        assert_eq!(ids(&answer.json()["choices"][0]), expected, "{name}");
    }
    for entry in [
        json!({ "path": "run" }),
        json!({ "path": "run", "name": "c" }),
        json!({ "path": "run", "name": "d", "aliases": ["b"] }),
    ] {
        assert_eq!(code(&load(&server, entry).expect(409)), "model_exists");
    }
    let removed = remove(&server, "b").expect(200).json();
    assert_eq!(removed, json!({ "name": "b", "running": 0 }));
    for name in ["b", "c"] {
        let answer = server.post("/v1/completions", &of(name, greedy(&[1], 2)));
        assert_eq!(code(&answer.expect(404)), "model_not_found");
    }
    assert_eq!(code(&remove(&server, "b").expect(404)), "model_not_found");
    let metrics = server.get("/metrics").body;
    assert!(
        !metrics.contains("emberlm_free_slots{model=\"b\"}"),
        "{metrics}"
    );

    // The last model, too, may be removed, and loaded again.
    remove(&server, "run").expect(200);
    assert_eq!(names(&server), <[&str; 0]>::default());
    let answer = server.post("/v1/completions", &greedy(&[1], 2)).expect(404);
    assert!(
        answer.body.contains("no model is served now"),
        "{}",
        answer.body
    );
    load(&server, json!({ "path": "run" })).expect(200);
    let answer = server.post("/v1/completions", &greedy(&[1, 2, 3], 20));
    assert_eq!(ids(&answer.json()["choices"][0]), expected);
}

#[test]
fn a_server_may_start_without_models() {
    let sandbox = with_model(64, &[1]);
    let server = serve(&sandbox, OPTIONS);
    assert_eq!(names(&server), <[&str; 0]>::default());
    load(&server, json!({ "path": "run" })).expect(200);
    let answer = server.post("/v1/completions", &greedy(&[1, 2], 5));
    let expected = generated(&sandbox, &[1, 2], 5);
    assert_eq!(ids(&answer.json()["choices"][0]), expected);
}

/// The number of a server's threads with this name.
#[cfg(target_os = "linux")]
fn threads(server: &Server, name: &str) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|found| found.trim() == name).count()
}

#[cfg(target_os = "linux")]
#[test]
fn a_stream_of_a_removed_model_finishes_and_then_its_memory_is_freed() {
    let sandbox = with_model(1 << 13, &[1]);
    let line = format!("run --slots 1 --context 8192 {OPTIONS}");
    let server = serve(&sandbox, &line);
    let mut body = greedy(&[1, 2], 3000);
    body["stream"] = true.into();
    body["logit_bias"] = json!({ "256": -100 });
    let mut stream = server.begin("POST", "/v1/completions", JSON, &body.to_string());
    server.wait_for("emberlm_running_sequences", "1");
    let removed = remove(&server, "run").expect(200).json();
    assert_eq!(removed["running"], 1);
    server.post("/v1/completions", &greedy(&[1], 2)).expect(404);
    // Another model of the same name does not wait for it.
    load(&server, json!({ "path": "run", "slots": 2 })).expect(200);
    server.post("/v1/completions", &greedy(&[1], 2)).expect(200);
    // Those of the engines, and those that they share.
    let both = threads(&server, "engine");
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let events = Answer::new(&text).events();
    let made = events.iter().flat_map(|event| ids(&event["choices"][0]));
    body["stream"] = false.into();
    let whole = server.post("/v1/completions", &body).expect(200).json();
    assert_eq!(made.collect::<Vec<_>>(), ids(&whole["choices"][0]));
    wait_until("the end of the engine", || {
        threads(&server, "engine") < both
    });
}

#[test]
fn adapters_join_their_base_while_it_answers() {
    let sandbox = with_adapters();
    let answer = |server: &Server, model: &str| {
        let choice = serve_adapters::answer(server, model, "Hello")["choices"][0].clone();
        let values = &choice["logprobs"]["token_logprobs"];
        format!("{} {values}", choice["token_ids"])
    };
    let line = "serve base lora dora peft --deterministic";
    let [base, lora, dora, peft] = {
        let server = sandbox.serve(line);
        ["base", "lora", "dora", "peft"].map(|model| answer(&server, model))
    };
    assert!(base != lora && lora != dora && dora != peft);
    let server = serve(&sandbox, &format!("base --deterministic {OPTIONS}"));
    let of_model = |model: &str| answer(&server, model);
    std::thread::scope(|scope| {
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let asking = scope.spawn(|| {
            let is_done = is_done;
            while is_done.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {
                assert_eq!(of_model("base"), base);
            }
        });
        let added = load(&server, json!({ "path": "lora" })).expect(200).json();
        assert_eq!(added["shares_slots_of"], "base", "{added}");
        assert!(
            added["adapter_of"].as_str().unwrap().ends_with("/base"),
            "{added}"
        );
        assert_eq!(of_model("lora"), lora);
        // As vLLM's clients do.
        for name in ["dora", "peft"] {
            let body = json!({ "lora_name": format!("my-{name}"), "lora_path": name });
            let path = "/v1/load_lora_adapter";
            admin(&server, "POST", path, &body.to_string()).expect(200);
        }
        assert_eq!(
            (of_model("my-dora"), of_model("my-peft"), of_model("lora")),
            (dora, peft.clone(), lora.clone())
        );
        let body = json!({ "lora_name": "my-dora" }).to_string();
        admin(&server, "POST", "/v1/unload_lora_adapter", &body).expect(200);
        remove(&server, "lora").expect(200);
        server
            .post(
                "/v1/completions",
                &json!({ "model": "lora", "prompt": "a" }),
            )
            .expect(404);
        assert_eq!(of_model("my-peft"), peft);
        load(&server, json!({ "path": "lora", "name": "again" })).expect(200);
        assert_eq!(of_model("again"), lora);
        drop(done);
        asking.join().unwrap();
    });
    // The base model may leave its adapters, and come back to them.
    remove(&server, "base").expect(200);
    assert_eq!(of_model("again"), lora);
    let added = load(&server, json!({ "path": "base" })).expect(200).json();
    assert_eq!(added["shares_slots_of"], "my-peft", "{added}");
    assert_eq!((of_model("base"), of_model("again")), (base, lora.clone()));
    // Other settings need another engine.
    let entry = json!({ "path": "lora", "name": "apart", "slots": 3 });
    let added = load(&server, entry).expect(200).json();
    assert_eq!(
        (&added["shares_slots_of"], &added["slots"]),
        (&Value::Null, &json!(3))
    );
    assert_eq!(of_model("apart"), lora);
}

#[test]
fn an_adapter_is_loaded_only_if_its_base_is_allowed() {
    let sandbox = with_adapters();
    let server = serve(
        &sandbox,
        "dora --admin-key-file admin-key --model-root peft",
    );
    let refused = load(&server, json!({ "path": "peft" }));
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert!(refused.body.contains("is not allowed"), "{}", refused.body);
}

#[test]
fn only_the_administrators_key_gives_access() {
    let sandbox = with_model(64, &[1]);
    sandbox.write("key", "client");
    let requests = [
        ("GET", "/admin/models", ""),
        ("POST", "/admin/models", r#"{"path":"run"}"#),
        ("DELETE", "/admin/models/run", ""),
        (
            "POST",
            "/v1/load_lora_adapter",
            r#"{"lora_name":"a","lora_path":"run"}"#,
        ),
        ("POST", "/v1/unload_lora_adapter", r#"{"lora_name":"run"}"#),
    ];
    let server = sandbox.serve("serve run --api-key-file key");
    for (method, path, body) in requests {
        let headers = format!("{JSON}authorization: Bearer client\r\n");
        let answer = server.ask(method, path, &headers, body).expect(403);
        assert_eq!(code(&answer), "admin_disabled", "{path}");
    }
    let server = serve(&sandbox, &format!("run --api-key-file key {OPTIONS}"));
    for key in [
        "",
        "authorization: Bearer client\r\n",
        "authorization: Bearer sesam\r\n",
        "x-api-key: client\r\n",
    ] {
        for (method, path, body) in requests {
            let answer = server
                .ask(method, path, &format!("{JSON}{key}"), body)
                .expect(401);
            assert_eq!(code(&answer), "invalid_api_key", "{path}");
        }
    }
    // Nor is it the key of a client.
    let answer = admin(&server, "GET", "/v1/models", "").expect(401);
    assert_eq!(code(&answer), "invalid_api_key");
    admin(&server, "GET", "/admin/models", "").expect(200);
    let refused = sandbox.refusal("serve run --model-root . --port 0");
    assert!(refused.contains("--admin-key-file"), "{refused}");
}

#[test]
fn models_are_loaded_from_below_a_root_only() {
    let sandbox = with_model(64, &[1]);
    let spec = sandbox.spec("data");
    for name in ["models/inside", "outside"] {
        write_run(&sandbox.path(name), &tiny(257), Some(&spec), &[1]);
    }
    sandbox.write("secret.jinja", "{{ messages }}");
    #[cfg(unix)]
    std::os::unix::fs::symlink("../outside", sandbox.path("models/link")).unwrap();
    let options = "--admin-key-file admin-key --model-root models --model-root hf:org";
    let server = serve(&sandbox, &format!("run {options}"));
    let absolute = sandbox.path("outside").to_str().unwrap().to_owned();
    for path in [
        "outside",
        &absolute,
        "models/../outside",
        "models/link",
        "models/link/../../outside",
        "models/missing",
        "/etc/passwd",
        "",
        "hf:organization/model",
        "hf:other/org",
        "hf:",
    ] {
        let refused = load(&server, json!({ "path": path, "name": "x" })).expect(403);
        assert_eq!(code(&refused), "path_not_allowed", "{path}");
    }
    let entry = json!({ "path": "models/inside", "chat_template": "secret.jinja" });
    assert_eq!(code(&load(&server, entry).expect(403)), "path_not_allowed");
    let entry = json!({ "path": "models/inside", "draft": "outside" });
    assert_eq!(code(&load(&server, entry).expect(403)), "path_not_allowed");
    let entry = json!({ "path": "models/inside", "chat_template": "chatml" });
    let added = load(&server, entry).expect(200).json();
    assert_eq!(added["name"], "inside");
    // A model of the command line may be loaded again.
    remove(&server, "run").expect(200);
    load(&server, json!({ "path": "run" })).expect(200);
    for (field, value) in [
        ("path", json!(5)),
        ("slots", json!(0)),
        ("contxt", json!(5)),
        ("weights", json!("int4")),
    ] {
        let mut entry = json!({ "path": "models/inside", "name": "x" });
        entry[field] = value;
        let refused = load(&server, entry).expect(400);
        assert!(refused.body.contains(field), "{}", refused.body);
    }
    let entry = json!({ "path": "models/inside", "name": "x", "context": 65 });
    load(&server, entry).expect(400);
    assert_eq!(names(&server), ["inside", "run"]);
}

#[test]
fn files_and_models_of_every_kind_are_loaded() {
    let sandbox = super::gguf::sandbox();
    sandbox.ok("export run --format gguf --type f32 --out m.gguf");
    let encoder = super::encoder::model();
    let encoder = encoder.path().to_str().unwrap();
    let server = serve(&sandbox, &format!("run {OPTIONS} --model-root {encoder}"));
    load(&server, json!({ "path": "m.gguf" })).expect(200);
    let answer = server.post("/v1/completions", &of("m.gguf", greedy(&[1, 2], 5)));
    let expected = generated(&sandbox, &[1, 2], 5);
    assert_eq!(ids(&answer.json()["choices"][0]), expected);
    load(&server, json!({ "path": encoder, "name": "e" })).expect(200);
    let body = json!({ "model": "e", "input": "w1 w2" });
    let embedded = || server.post("/v1/embeddings", &body).expect(200).json();
    let vector = embedded()["data"].clone();
    remove(&server, "e").expect(200);
    load(&server, json!({ "path": encoder, "name": "e" })).expect(200);
    assert_eq!(embedded()["data"], vector);
    let refused = load(&server, json!({ "path": "data", "name": "x" }));
    assert_eq!(refused.status, 400, "{}", refused.body);
}

#[test]
fn runs_are_followed_until_they_are_removed() {
    let (sandbox, next) = (with_model(64, &[1]), with_model(64, &[2]));
    sandbox.write("run/config.toml", "");
    sandbox.write("empty/config.toml", "");
    let server = serve(&sandbox, OPTIONS);
    let refused = load(&server, json!({ "path": "empty", "follow": true })).expect(400);
    let reason = "empty has no checkpoint yet";
    assert!(refused.body.contains(reason), "{}", refused.body);
    load(&server, json!({ "path": "run", "follow": true })).expect(200);
    let answered = || {
        let answer = server.post("/v1/completions", &greedy(&[1, 2], 20));
        ids(&answer.expect(200).json()["choices"][0])
    };
    assert_eq!(answered(), generated(&sandbox, &[1, 2], 20));
    let checkpoint = "run/checkpoints/step-00000002";
    fs::rename(next.path(checkpoint), sandbox.path(checkpoint)).unwrap();
    let after = generated(&sandbox, &[1, 2], 20);
    wait_until("the next checkpoint", || answered() == after);
    remove(&server, "run").expect(200);
    #[cfg(target_os = "linux")]
    wait_until("the end of the thread", || threads(&server, "follow") == 0);
}

#[test]
fn a_model_that_does_not_fit_is_refused() {
    let sandbox = with_model(64, &[1]);
    let server = serve(&sandbox, &format!("run {OPTIONS}"));
    let entry = json!({ "path": "run", "name": "large", "slots": 400_000_000 });
    let refused = load(&server, entry).expect(507);
    assert_eq!(code(&refused), "insufficient_memory");
    for part in ["needs about", "key-value caches", "--ignore-memory"] {
        assert!(refused.body.contains(part), "{}", refused.body);
    }
    assert_eq!(names(&server), ["run"]);
    let answer = server.post("/v1/completions", &greedy(&[1, 2], 5));
    let expected = generated(&sandbox, &[1, 2], 5);
    assert_eq!(ids(&answer.json()["choices"][0]), expected);
}

#[test]
fn loaded_models_share_the_memory_of_all() {
    let sandbox = with_model(64, &[1]);
    let server = serve(
        &sandbox,
        &format!("a=run --memory 1KiB --slots 1 {OPTIONS}"),
    );
    let loaded = || {
        let models = admin(&server, "GET", "/admin/models", "")
            .expect(200)
            .json();
        let models = models["models"].as_array().unwrap().iter();
        let loaded = models.map(|model| model["loaded"].as_bool().unwrap());
        loaded.collect::<Vec<_>>()
    };
    assert_eq!(loaded(), [true]);
    load(&server, json!({ "path": "run", "name": "b" })).expect(200);
    let expected = generated(&sandbox, &[1, 2], 5);
    let ask = |name: &str| {
        let answer = server.post("/v1/completions", &of(name, greedy(&[1, 2], 5)));
        assert_eq!(ids(&answer.json()["choices"][0]), expected, "{name}");
    };
    wait_until("the end of a", || loaded() == [false, true]);
    for name in ["a", "b", "a"] {
        ask(name);
    }
    wait_until("the end of b", || loaded() == [true, false]);
    remove(&server, "b").expect(200);
    load(&server, json!({ "path": "run", "name": "c" })).expect(200);
    remove(&server, "a").expect(200);
    ask("c");
}
