//! `emberlm serve` with several models: their names, aliases and settings.

use serde_json::{Value, json};

use super::serve::{generated, greedy, ids, with_model};

/// The names in `/v1/models` with the models they refer to.
fn listed(models: &Value) -> Vec<(&str, &str)> {
    let models = models["data"].as_array().unwrap().iter();
    models
        .map(|model| {
            (
                model["id"].as_str().unwrap(),
                model["root"].as_str().unwrap(),
            )
        })
        .collect()
}

#[test]
fn models_respond_to_names_and_aliases() {
    let sandbox = with_model(64, &[1]);
    let server = sandbox.serve("serve a=run b=run --alias gpt-3.5-turbo=b --slots 1");
    let models = server.json("/v1/models");
    let expected = [("a", "a"), ("b", "b"), ("gpt-3.5-turbo", "b")];
    assert_eq!(listed(&models), expected);
    let one = server.json("/v1/models/gpt-3.5-turbo");
    assert_eq!(
        (&one["id"], &one["root"]),
        (&json!("gpt-3.5-turbo"), &json!("b"))
    );
    let mut texts = Vec::new();
    for (asked, answers) in expected {
        let mut body = greedy(&[1, 2], 5);
        body["model"] = asked.into();
        let answer = server.post("/v1/completions", &body).json();
        assert_eq!(answer["model"], answers, "{answer}");
        texts.push(ids(&answer["choices"][0]));
    }
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    let mut body = greedy(&[1, 2], 5);
    body["model"] = "run".into();
    let answer = server.post("/v1/completions", &body).expect(404);
    assert_eq!(
        answer.json()["error"]["message"],
        "the model \"run\" does not exist; there is: a, b"
    );
}

#[test]
fn each_model_has_its_settings_from_the_file() {
    let sandbox = with_model(64, &[1]);
    sandbox.write(
        "serve.toml",
        r#"
        [[model]]
        path = "run"

        [[model]]
        path = "run"
        name = "small"
        aliases = ["tiny"]
        context = 32
        slots = 1
        weights = "int8"
        chat_template = "chatml"
        sampling = { temperature = 0, presence_penalty = 0.5 }
        "#,
    );
    let server = sandbox.serve("serve --config serve.toml --slots 2");
    let models = server.json("/v1/models");
    assert_eq!(
        listed(&models),
        [("run", "run"), ("small", "small"), ("tiny", "small")]
    );
    let lengths = models["data"].as_array().unwrap().iter();
    let lengths: Vec<_> = lengths.map(|model| &model["max_model_len"]).collect();
    assert_eq!(lengths, [64, 32, 32]);
    let shown = server.json("/api/models");
    assert_eq!(
        (&shown["models"][0]["chat"], &shown["models"][1]["chat"]),
        (&json!(false), &json!(true))
    );
    // The model's sampling settings apply if a request does not set them.
    let text = |settings: Value| {
        let mut body = json!({ "model": "tiny", "prompt": [1, 2], "max_tokens": 20, "return_token_ids": true });
        body.as_object_mut()
            .unwrap()
            .extend(settings.as_object().unwrap().clone());
        ids(&server.post("/v1/completions", &body).json()["choices"][0])
    };
    let expected = text(json!({ "temperature": 0, "presence_penalty": 0.5 }));
    assert_eq!(text(json!({})), expected);
    assert_eq!(text(json!({ "seed": 5 })), expected);
    assert_ne!(text(json!({ "temperature": 3, "seed": 5 })), expected);
}

#[test]
fn invalid_settings_are_rejected_before_loading_weights() {
    let sandbox = with_model(64, &[1]);
    let template =
        "[[model]]\npath = 'run'\n[[model]]\nname = 'b'\npath = 'run'\nchat_template = 'nosuch'\n";
    sandbox.write("template.toml", template);
    let sampling = "[[model]]\npath = 'run'\nsampling = { top_p = 2 }\n";
    sandbox.write("sampling.toml", sampling);
    sandbox.write("empty", " \n");
    // Loading weights would print a line on stderr.
    sandbox.check_messages("serve");
}

#[test]
fn more_samples_than_slots_equal_those_of_a_larger_server() {
    let sandbox = with_model(64, &[1]);
    let few = sandbox.serve("serve run --slots 2 --max-queue 8 --chat-template chatml");
    let enough = sandbox.serve("serve run --slots 9 --chat-template chatml");
    let body = json!({ "model": "run", "prompt": [1, 2], "max_tokens": 12, "n": 9, "seed": 5, "logit_bias": { "256": -100 } });
    let texts = |answer: Value| {
        let choices = answer["choices"].as_array().unwrap().iter();
        let texts = choices.map(|choice| choice["text"].as_str().unwrap().to_owned());
        (texts.collect::<Vec<_>>(), answer["usage"].clone())
    };
    let (expected, usage) = texts(enough.post("/v1/completions", &body).json());
    let (found, counted) = texts(few.post("/v1/completions", &body).json());
    assert_eq!(found, expected);
    assert_eq!(counted["completion_tokens"], usage["completion_tokens"]);
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let mut pieces = vec![String::new(); 9];
    for event in few.post("/v1/completions", &streamed).events() {
        for choice in event["choices"].as_array().unwrap() {
            let index = choice["index"].as_u64().unwrap() as usize;
            pieces[index] += choice["text"].as_str().unwrap();
        }
    }
    assert_eq!(pieces, expected);
    // Two run, and eight wait.
    let mut more = body.clone();
    more["n"] = 11.into();
    let refused = few.post("/v1/completions", &more).expect(400);
    assert_eq!(
        refused.json()["error"]["message"],
        "n: must be between 1 and 10, the number of answers that can run and wait"
    );
    // Memory is the other limit.
    let few = sandbox.serve("serve run --slots 2 --max-queue 100000 --max-request-memory 1MiB");
    more["n"] = 90_000.into();
    let refused = few.post("/v1/completions", &more).expect(400);
    assert_eq!(refused.json()["error"]["code"], "request_too_large");
    few.wait_for("emberlm_free_slots", "2");
}

#[cfg(unix)]
#[test]
fn models_take_turns_in_memory_for_one() {
    let sandbox = with_model(64, &[1]);
    let stderr = std::fs::File::create(sandbox.path("stderr")).unwrap();
    let server = sandbox.serve_with("serve a=run b=run --memory 1KiB --slots 1", stderr);
    let expected = generated(&sandbox, &[1, 2], 5);
    for name in ["a", "b", "b", "a"] {
        let mut body = greedy(&[1, 2], 5);
        body["model"] = name.into();
        let answer = server.post("/v1/completions", &body).json();
        assert_eq!(ids(&answer["choices"][0]), expected, "{name}");
    }
    server.stop();
    let log = sandbox.text("stderr");
    let loaded = log
        .lines()
        .filter_map(|line| line.strip_suffix(": loaded again"));
    assert_eq!(loaded.collect::<Vec<_>>(), ["a", "b", "a"], "{log}");
}
