//! The template `tool_use` is used for requests with tools, as in `transformers`.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::entry::{HERMES, PLAIN, Server};
use super::tools;

const CONFIG: &str = "tokenizer_config.json";

/// Checks that a conversation is formatted by `PLAIN` without tools and by `HERMES` with tools.
fn check(server: &Server) {
    let tokens = |fields: Value| {
        let answer = server.answered(fields);
        answer["usage"]["prompt_tokens"].as_u64().unwrap() as usize
    };
    // One token per byte, after the end-of-text token.
    assert_eq!(
        tokens(json!({ "max_tokens": 1 })),
        "[user]?\n[assistant]".len() + 1
    );
    let with_tools = tokens(json!({ "tools": tools(), "max_tokens": 1 }));
    assert!(with_tools > 200, "{with_tools}");
    let answer = server.answered(json!({ "tools": [tools()[1]], "tool_choice": "required",
        "parallel_tool_calls": false }));
    let call = &answer["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(call["name"], "now", "{answer}");
}

#[test]
fn named_templates_are_read_from_the_tokenizer_configuration() {
    let folder = TempDir::new().unwrap();
    let templates = json!([
        { "name": "default", "template": PLAIN },
        { "name": "tool_use", "template": HERMES },
    ]);
    let config = json!({ "chat_template": templates }).to_string();
    fs::write(folder.path().join(CONFIG), config).unwrap();
    check(&Server::with_templates(&folder, CONFIG));
}

#[test]
fn named_templates_are_read_from_the_templates_directory() {
    let folder = TempDir::new().unwrap();
    let added = folder.path().join("additional_chat_templates");
    fs::create_dir(&added).unwrap();
    fs::write(folder.path().join("chat_template.jinja"), PLAIN).unwrap();
    fs::write(added.join("tool_use.jinja"), HERMES).unwrap();
    check(&Server::with_templates(&folder, "chat_template.jinja"));
}

#[test]
fn a_single_named_template_applies_to_all_conversations() {
    let folder = TempDir::new().unwrap();
    let templates =
        json!([{ "name": "default", "template": PLAIN }, { "name": "rag", "template": HERMES }]);
    let config = json!({ "chat_template": templates }).to_string();
    fs::write(folder.path().join(CONFIG), config).unwrap();
    let server = Server::with_templates(&folder, CONFIG);
    let tokens = |fields: Value| server.answered(fields)["usage"]["prompt_tokens"].as_u64();
    // The default template does not write the functions: they are in the system message, as everything in it.
    let prompt = tokens(json!({ "tools": tools(), "max_tokens": 1 })).unwrap() as usize;
    assert!(prompt > "[user]?\n[assistant]".len() + 200, "{prompt}");
}
