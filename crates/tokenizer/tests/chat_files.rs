//! Tests of the files of chat templates, and of stored templates.

use std::fs;

use emberlm_tokenizer::chat::{ChatExample, ChatTemplate, ChatTemplateSpec};
use serde_json::{Value, json};

fn chat() -> Value {
    json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})
}

/// A stored template renders the same text even if the file has changed.
#[test]
fn stored_templates_do_not_depend_on_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({
        "bos_token": "<s>", "chat_template": "{{ bos_token }}{{ messages[0].content }}[END]",
        "added_tokens_decoder": {"5": {"content": "[END]", "special": true}, "6": {"content": "[OTHER]", "special": true}},
    });
    fs::write(
        folder.path().join("tokenizer_config.json"),
        config.to_string(),
    )
    .unwrap();
    let read = ChatTemplate::from_path(folder.path(), None).unwrap();
    let json = serde_json::to_string(&ChatTemplateSpec::from(&read)).unwrap();
    let spec: ChatTemplateSpec = serde_json::from_str(&json).unwrap();
    let again = ChatTemplate::try_from(&spec).unwrap();
    assert_eq!((again.hash(), again.name()), (read.hash(), read.name()));
    assert_eq!(again.specials(), ["<s>", "[END]"].into());
    let broken = ChatTemplateSpec {
        template: "{% if".to_owned(),
        ..spec
    };
    assert!(ChatTemplate::try_from(&broken).is_err());
}

#[test]
fn template_files_are_loaded_or_rejected_with_their_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let refusal = |name: &str, which| {
        ChatTemplate::from_path(&path(name), which)
            .unwrap_err()
            .to_string()
    };
    assert!(
        refusal("", None).ends_with("has neither chat_template.jinja nor tokenizer_config.json")
    );
    let message = "nope.jinja"
        .parse::<ChatTemplate>()
        .unwrap_err()
        .to_string();
    assert!(
        message.starts_with("unknown chat template `nope.jinja`: choose chatml or llama3"),
        "{message}"
    );

    fs::write(path("tokenizer_config.json"), "{").unwrap();
    assert!(refusal("", None).contains("tokenizer_config.json: it is not JSON"));
    fs::write(path("tokenizer_config.json"), r#"{"bos_token": "<s>"}"#).unwrap();
    assert!(refusal("", None).ends_with("it has no `chat_template`"));
    fs::write(path("tokenizer_config.json"), r#"{"chat_template": 1}"#).unwrap();
    assert!(refusal("", None).contains("`chat_template` must be a string, or a list"));
    let config = json!({
        "bos_token": {"content": "<s>", "special": true}, "eos_token": "</s>", "pad_token": null,
        "chat_template": [{"name": "rag", "template": "R"}, {"name": "default", "template": "{{ bos_token }}D{{ eos_token }}"}],
    });
    fs::write(path("tokenizer_config.json"), config.to_string()).unwrap();
    let render = |template: ChatTemplate| {
        let ChatExample::Conversation(chat) = ChatExample::from_json(&chat().to_string()).unwrap()
        else {
            panic!("a conversation");
        };
        template.render(&chat, false).unwrap()
    };
    let open = |name: &str, which| render(ChatTemplate::from_path(&path(name), which).unwrap());
    assert_eq!(open("", None), "<s>D</s>");
    assert_eq!(open("tokenizer_config.json", Some("rag")), "R");
    assert!(refusal("", Some("tools")).ends_with("none called \"tools\", but: rag, default"));
    fs::write(path("chat_template.jinja"), "{{ eos_token }}J").unwrap();
    assert_eq!(open("", None), "</s>J");
    let parsed = path("chat_template.jinja")
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(render(parsed), "</s>J");
    assert!(
        refusal("chat_template.jinja", Some("x")).ends_with("it has one template without a name")
    );
    let beside = |name: &str| ChatTemplate::beside_model(&path(name)).unwrap();
    assert_eq!(beside("").map(render).unwrap(), "</s>J");
    fs::create_dir(path("other")).unwrap();
    assert!(beside("other").is_none());
    fs::write(
        path("other/tokenizer_config.json"),
        r#"{"eos_token": "<e>"}"#,
    )
    .unwrap();
    assert!(beside("other").is_none());
    let json = r#"{"chat_template": "{{ eos_token }}P"}"#;
    fs::write(path("other/chat_template.json"), json).unwrap();
    assert_eq!(beside("other").map(render).unwrap(), "<e>P");
    fs::write(path("other/tokenizer_config.json"), "{").unwrap();
    assert!(ChatTemplate::beside_model(&path("other")).is_err());
    fs::write(path("latin.jinja"), b"\xE9").unwrap();
    assert!(refusal("latin.jinja", None).contains("latin.jinja: "));
}
