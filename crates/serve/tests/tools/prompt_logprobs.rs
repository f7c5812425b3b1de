//! Log-probabilities of prompts, as evaluation harnesses request them: `echo` with `logprobs`. The model's tokens are bytes.

use serde_json::{Value, json};

use super::entry::{PLAIN, Server};

const PATH: &str = "/v1/completions";
/// The end-of-text token of the model.
const END: &str = "256";
/// Each é has two tokens.
const TEXT: &str = "héllo wörld";

fn ask(server: &Server, fields: Value) -> (u16, Value) {
    let (status, body) = server.post(PATH, json!({ "model": "m" }), fields);
    (status, serde_json::from_str(&body).unwrap())
}

#[track_caller]
fn choice(server: &Server, fields: Value) -> Value {
    let (status, body) = ask(server, fields);
    assert_eq!(status, 200, "{body}");
    body["choices"][0].clone()
}

fn numbers(list: &Value) -> Vec<Option<f64>> {
    let numbers = list.as_array().unwrap().iter();
    numbers.map(Value::as_f64).collect()
}

/// The request of lm-evaluation-harness for the likelihood of a text.
fn likelihood(prompt: Value) -> Value {
    json!({ "prompt": prompt, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": true })
}

/// The most probable of a token's alternatives.
fn greatest(top: &Value) -> f64 {
    let top = top.as_object().unwrap().values();
    top.map(|logprob| logprob.as_f64().unwrap())
        .fold(f64::NEG_INFINITY, f64::max)
}

#[test]
fn each_token_has_the_log_probability_that_generation_gives_it() {
    let server = Server::new(PLAIN);
    let ids: Vec<u8> = TEXT.bytes().collect();
    let echoed = choice(&server, likelihood(json!(ids)));
    let logprobs = &echoed["logprobs"];
    let found = numbers(&logprobs["token_logprobs"]);
    assert_eq!(found.len(), ids.len() + 1, "{echoed}");
    assert_eq!(
        (found[0], &logprobs["top_logprobs"][0]),
        (None, &Value::Null)
    );
    for at in 1..ids.len() {
        // The bias forces the token, and is not part of its log-probability.
        let forced = json!({ "prompt": ids[..at], "max_tokens": 1, "logprobs": 1, "logit_bias": { ids[at].to_string(): 100 } });
        let forced = &choice(&server, forced)["logprobs"];
        let expected = forced["token_logprobs"][0].as_f64().unwrap();
        assert!(
            (found[at].unwrap() - expected).abs() < 1e-4,
            "{at}: {echoed}"
        );
        assert_eq!(
            greatest(&forced["top_logprobs"][0]) as f32,
            greatest(&logprobs["top_logprobs"][at]) as f32,
            "{at}: {echoed}"
        );
    }
    let text = echoed["text"].as_str().unwrap();
    assert!(text.starts_with(TEXT), "{echoed}");
    // The characters at which the tokens begin.
    let offsets = json!([0, 1, 1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 10, 11]);
    let count = ids.len() + 1;
    let offsets: Vec<&Value> = offsets.as_array().unwrap().iter().take(count).collect();
    let found: Vec<&Value> = logprobs["text_offset"].as_array().unwrap().iter().collect();
    assert_eq!(found, offsets, "{echoed}");
    assert_eq!(logprobs["tokens"][0], "h");
    assert_eq!(logprobs["tokens"].as_array().unwrap().len(), count);
}

/// Harnesses compare a token's log-probability with the greatest of the alternatives.
#[test]
fn greedy_tokens_are_the_most_probable_alternatives() {
    let server = Server::new(PLAIN);
    let greedy = json!({ "prompt": "ab", "temperature": 0, "max_tokens": 6, "return_token_ids": true, "logit_bias": { END: -100 } });
    let made = choice(&server, greedy)["token_ids"].clone();
    let mut ids = vec![json!(97), json!(98)];
    ids.extend(made.as_array().unwrap().iter().cloned());
    let echoed = choice(&server, likelihood(json!(ids)));
    let is_greedy = |at: usize| {
        let logprob = echoed["logprobs"]["token_logprobs"][at].as_f64().unwrap();
        logprob == greatest(&echoed["logprobs"]["top_logprobs"][at])
    };
    for at in 2..8 {
        assert!(is_greedy(at), "{at}: {echoed}");
    }
    ids[5] = json!((ids[5].as_u64().unwrap() + 1) % 256);
    let echoed = choice(&server, likelihood(json!(ids)));
    let logprob = &echoed["logprobs"]["token_logprobs"][5];
    assert!(logprob.as_f64().unwrap() < greatest(&echoed["logprobs"]["top_logprobs"][5]));
}

#[test]
fn a_prompt_is_scored_without_an_answer() {
    let server = Server::new(PLAIN);
    let mut fields = likelihood(json!([TEXT, "a"]));
    fields["max_tokens"] = 0.into();
    let (status, body) = ask(&server, fields.clone());
    assert_eq!(status, 200, "{body}");
    let bytes = TEXT.len();
    for (at, (text, count)) in [(TEXT, bytes), ("a", 1)].into_iter().enumerate() {
        let choice = &body["choices"][at];
        assert_eq!(choice["text"], text, "{body}");
        assert_eq!(choice["finish_reason"], "length");
        for list in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            let list = choice["logprobs"][list].as_array().unwrap();
            assert_eq!(list.len(), count, "{body}");
        }
    }
    assert_eq!(body["usage"]["completion_tokens"], 0);
    assert_eq!(body["usage"]["prompt_tokens"], bytes + 1);
    // A cached prompt has the same log-probabilities.
    let (_, again) = ask(&server, fields);
    assert_eq!(again["choices"], body["choices"]);
    let silent = json!({ "prompt": "ab", "max_tokens": 0, "echo": true });
    let silent = choice(&server, silent);
    assert_eq!(
        (&silent["text"], &silent["logprobs"]),
        (&json!("ab"), &Value::Null)
    );
}

/// Harnesses cut off the last token, which they take for the answer's.
#[test]
fn the_end_of_an_answer_is_one_of_its_tokens() {
    let server = Server::new(PLAIN);
    let mut fields = likelihood(json!("ab"));
    fields["logit_bias"] = json!({ END: 100 });
    let echoed = choice(&server, fields.clone());
    assert_eq!(
        (&echoed["text"], &echoed["finish_reason"]),
        (&json!("ab"), &json!("stop"))
    );
    let logprobs = &echoed["logprobs"];
    assert_eq!(
        logprobs["token_logprobs"].as_array().unwrap().len(),
        3,
        "{echoed}"
    );
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2]));
    // Without the prompt, the answer is empty.
    fields["echo"] = false.into();
    assert_eq!(choice(&server, fields)["logprobs"], Value::Null);
}

#[test]
fn a_stream_begins_with_the_prompt() {
    let server = Server::new(PLAIN);
    let mut fields = json!({ "prompt": [TEXT, "ab"], "n": 2, "max_tokens": 3, "temperature": 0, "logprobs": 2, "echo": true });
    let (_, whole) = ask(&server, fields.clone());
    fields["stream"] = true.into();
    let (status, body) = server.post(PATH, json!({ "model": "m" }), fields);
    assert_eq!(status, 200, "{body}");
    let mut joined = vec![(String::new(), Vec::new()); 4];
    for data in body.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let Ok(event) = serde_json::from_str::<Value>(data) else {
            continue;
        };
        let choice = &event["choices"][0];
        let (text, logprobs) = &mut joined[choice["index"].as_u64().unwrap() as usize];
        text.push_str(choice["text"].as_str().unwrap());
        let new = choice["logprobs"]["token_logprobs"].as_array();
        logprobs.extend(new.into_iter().flatten().cloned());
    }
    for (choice, (text, logprobs)) in whole["choices"].as_array().unwrap().iter().zip(joined) {
        assert_eq!(choice["text"], text);
        let expected = numbers(&choice["logprobs"]["token_logprobs"]);
        let logprobs = numbers(&logprobs.into());
        assert_eq!(logprobs.len(), expected.len());
        for (found, expected) in logprobs.into_iter().zip(expected) {
            let pair = found.zip(expected);
            assert!(pair.is_none_or(|(found, expected)| (found - expected).abs() < 1e-4));
        }
    }
}

/// The log-probabilities of all tokens of a request are held until it is answered.
#[test]
fn the_memory_of_scored_prompts_is_limited() {
    let server = Server::new(PLAIN);
    let mut fields = likelihood(json!(vec!["a".repeat(4000); 64]));
    fields["logprobs"] = 5.into();
    let (status, body) = ask(&server, fields.clone());
    let message = body["error"]["message"].as_str().unwrap_or_default();
    assert!(status >= 400 && message.contains("memory"), "{body}");
    fields["prompt"] = json!("a".repeat(4000));
    assert_eq!(choice(&server, fields)["finish_reason"], "length");
}

#[test]
fn invalid_requests_are_refused() {
    let server = Server::new(PLAIN);
    for (fields, message) in [
        (json!({ "logprobs": 6 }), "logprobs: must be at most 5"),
        (json!({ "prompt": [[]] }), "no tokens given"),
        (
            json!({ "prompt": [97, 300] }),
            "token id 300 is out of range",
        ),
        (json!({ "prompt": vec![97; 4097], "max_tokens": 0 }), "4097"),
        (
            json!({ "prompt_logprobs": 1 }),
            "prompt_logprobs: is not supported: send `echo` with `logprobs`",
        ),
    ] {
        let mut body = likelihood(json!("ab"));
        body.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let (status, answer) = ask(&server, body);
        let found = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(
            status == 400 && found.contains(message),
            "{fields}: {answer}"
        );
    }
}
