//! The tokens of texts and conversations, and the text of tokens. The model's tokens are bytes.

use serde_json::{Value, json};

use super::entry::{HERMES, PLAIN, Server};
use super::tools;

const TOKENIZE: &str = "/tokenize";
const DETOKENIZE: &str = "/detokenize";

#[track_caller]
fn refused(server: &Server, path: &str, fields: Value) -> (u16, String) {
    let (status, body) = server.send(path, fields);
    (
        status,
        body["error"]["message"].as_str().unwrap().to_owned(),
    )
}

#[test]
fn a_text_has_its_bytes_as_tokens_and_back() {
    let server = Server::new(PLAIN);
    let ids = json!([104, 195, 169]);
    let expected = json!({ "count": 3, "max_model_len": 4096, "tokens": ids });
    let of_vllm = json!({ "model": "m", "prompt": "hé" });
    assert_eq!(server.answered_at(TOKENIZE, of_vllm), expected);
    // As in llama.cpp.
    assert_eq!(
        server.answered_at(TOKENIZE, json!({ "content": "hé" })),
        expected
    );
    let named = json!({ "prompt": "hé", "return_token_strs": true });
    assert_eq!(
        server.answered_at(TOKENIZE, named)["token_strs"],
        json!(["h", "\u{fffd}", "\u{fffd}"])
    );
    let pieces = json!({ "content": "hé", "with_pieces": true });
    assert_eq!(
        server.answered_at(TOKENIZE, pieces)["tokens"],
        json!([{ "id": 104, "piece": "h" }, { "id": 195, "piece": [195] }, { "id": 169, "piece": [169] }])
    );
    let empty = server.answered_at(TOKENIZE, json!({ "content": "" }));
    assert_eq!((&empty["count"], &empty["tokens"]), (&json!(0), &json!([])));

    let back = server.answered_at(DETOKENIZE, json!({ "tokens": ids }));
    assert_eq!(back, json!({ "prompt": "hé", "content": "hé" }));
    let nothing = server.answered_at(DETOKENIZE, json!({ "model": "m", "tokens": [] }));
    assert_eq!(nothing["prompt"], "");
}

/// People count tokens to learn whether a text fits.
#[test]
fn a_text_may_be_longer_than_the_context() {
    let server = Server::new(PLAIN);
    let long = server.answered_at(TOKENIZE, json!({ "prompt": "a".repeat(5000) }));
    assert_eq!(
        (&long["count"], &long["max_model_len"]),
        (&json!(5000), &json!(4096))
    );
}

#[test]
fn special_tokens_are_added_as_the_fields_say() {
    let server = Server::with_beginning(PLAIN, "<s>");
    for (fields, ids) in [
        (json!({ "prompt": "a" }), json!([257, 97])),
        (
            json!({ "prompt": "a", "add_special_tokens": false }),
            json!([97]),
        ),
        (json!({ "content": "a" }), json!([97])),
        (
            json!({ "content": "a", "add_special": true }),
            json!([257, 97]),
        ),
    ] {
        assert_eq!(
            server.answered_at(TOKENIZE, fields.clone())["tokens"],
            ids,
            "{fields}"
        );
    }
    // A text cannot contain the token.
    let text = server.answered_at(TOKENIZE, json!({ "content": "<s>" }));
    assert_eq!(text["tokens"], json!([60, 115, 62]));
    let back = server.answered_at(DETOKENIZE, json!({ "tokens": [257, 97] }));
    assert_eq!(back["prompt"], "<s>a");
    let completion = json!({ "model": "m", "prompt": "a", "max_tokens": 1 });
    let usage = server.answered_at("/v1/completions", completion)["usage"].clone();
    assert_eq!(usage["prompt_tokens"], 2);
}

#[test]
fn a_conversation_has_the_tokens_of_its_answer_s_prompt() {
    let server = Server::new(HERMES);
    let messages =
        json!([{ "role": "system", "content": "s" }, { "role": "user", "content": "hé" }]);
    let fields = json!({ "model": "m", "messages": messages, "tools": tools() });
    let found = server.answered_at(TOKENIZE, fields.clone());
    let mut chat = fields;
    chat["max_tokens"] = 1.into();
    let usage = server.answered_at("/v1/chat/completions", chat)["usage"].clone();
    assert_eq!(found["count"], usage["prompt_tokens"]);
    let text = server.answered_at(DETOKENIZE, json!({ "tokens": found["tokens"] }));
    let text = text["prompt"].as_str().unwrap();
    // The template's newlines after blocks are not written.
    assert!(text.ends_with("[system]s[user]hé[assistant]"), "{text}");
    assert!(text.contains("get_weather"), "{text}");
    let unfinished = json!({ "messages": messages, "add_generation_prompt": false });
    let unfinished = server.answered_at(TOKENIZE, unfinished);
    let text = server.answered_at(DETOKENIZE, json!({ "tokens": unfinished["tokens"] }));
    assert_eq!(text["prompt"], "[system]s[user]hé");
}

#[test]
fn wrong_requests_are_refused_with_the_reason() {
    let server = Server::new(PLAIN);
    let one = "must have exactly one of prompt, content and messages";
    for (path, fields, status, message) in [
        (TOKENIZE, json!({}), 400, one),
        (TOKENIZE, json!({ "prompt": "a", "content": "a" }), 400, one),
        (
            TOKENIZE,
            json!({ "prompt": ["a"] }),
            400,
            "prompt: invalid type",
        ),
        (
            TOKENIZE,
            json!({ "promt": "a" }),
            400,
            "promt: this field is not supported; did you mean prompt?",
        ),
        (
            TOKENIZE,
            json!({ "content": "a", "parse_special": true }),
            400,
            "parse_special: must be false",
        ),
        (TOKENIZE, json!({ "prompt": "a", "model": "x" }), 404, "x"),
        (DETOKENIZE, json!({}), 400, "missing field `tokens`"),
        (DETOKENIZE, json!({ "tokens": [97, 9999] }), 400, "tokens: "),
        (DETOKENIZE, json!({ "tokens": [-1] }), 400, "tokens[0]: "),
    ] {
        let found = refused(&server, path, fields.clone());
        assert!(
            found.0 == status && found.1.contains(message),
            "{fields}: {found:?}"
        );
    }
}

#[test]
fn the_server_says_under_every_usual_name_that_it_answers() {
    let server = Server::new(PLAIN);
    for path in [
        "/health",
        "/v1/health",
        "/healthz",
        "/livez",
        "/readyz",
        "/ping",
    ] {
        assert_eq!(
            server.get(path),
            (200, "{\"status\":\"ok\"}".to_owned()),
            "{path}"
        );
    }
    assert_eq!(server.get("/v1/healthy").0, 404);
}
