//! Compares chat templates and examples with the output of `transformers`, recorded by `fixtures/make_chat.py`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use emberlm_tokenizer::chat::{ChatEncoder, ChatExample, ChatTemplate, Conversation};
use emberlm_tokenizer::{Tokenizer, TokenizerKind};
use serde::Deserialize;

use crate::tables::check_table;

#[derive(Deserialize)]
struct Golden {
    tokens: BTreeMap<String, BTreeMap<String, String>>,
    cases: Vec<Case>,
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    template: String,
    tokenizer: String,
    record: String,
    ids: Vec<u32>,
}

#[derive(Deserialize)]
struct Case {
    template: String,
    tokenizer: String,
    hostile: bool,
    record: String,
    text: String,
    prompted: String,
    ids: Vec<u32>,
    mask: String,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("fixtures/chat.json")).unwrap()
}

fn tokenizer(name: &str) -> Tokenizer {
    let path = match name {
        "gpt2" => return Tokenizer::builtin(TokenizerKind::Gpt2).unwrap(),
        "llama" => fixtures().join("files/llama.json"),
        _ => fixtures().join("chat").join(format!("{name}.json")),
    };
    Tokenizer::from_file(&path).unwrap()
}

fn template(name: &str, golden: &Golden) -> ChatTemplate {
    let path = fixtures()
        .join("chat/templates")
        .join(format!("{name}.jinja"));
    let template = match path.is_file() {
        true => ChatTemplate::from_path(&path, None),
        false => name.parse(),
    };
    template.unwrap().with_tokens(golden.tokens[name].clone())
}

fn encoders(golden: &Golden) -> BTreeMap<(String, String), ChatEncoder> {
    let mut encoders = BTreeMap::new();
    for case in &golden.cases {
        let key = (case.template.clone(), case.tokenizer.clone());
        encoders.entry(key).or_insert_with(|| {
            ChatEncoder::new(
                template(&case.template, golden),
                &tokenizer(&case.tokenizer),
            )
        });
    }
    encoders
}

#[test]
fn rendered_texts_match_transformers() {
    let golden = golden();
    assert!(golden.cases.len() > 90);
    for case in &golden.cases {
        let template = template(&case.template, &golden);
        let ChatExample::Conversation(conversation) = ChatExample::from_json(&case.record).unwrap()
        else {
            panic!("{} is a conversation", case.record);
        };
        let about = format!("{}: {}", case.template, case.record);
        assert_eq!(
            template.render(&conversation, false).unwrap(),
            case.text,
            "{about}"
        );
        assert_eq!(
            template.render(&conversation, true).unwrap(),
            case.prompted,
            "{about}"
        );
    }
}

#[test]
fn ids_and_masks_match_transformers() {
    let golden = golden();
    let encoders = encoders(&golden);
    for case in &golden.cases {
        let encoder = &encoders[&(case.template.clone(), case.tokenizer.clone())];
        let tokens = encoder.encode(&case.record).unwrap();
        let about = format!("{} with {}: {}", case.template, case.tokenizer, case.record);
        assert_eq!(tokens.ids, case.ids, "{about}");
        let mask: String = tokens
            .learnt
            .iter()
            .map(|&learnt| if learnt { '1' } else { '0' })
            .collect();
        assert_eq!(mask, case.mask, "{about}");
    }
}

#[test]
fn prompts_match_transformers() {
    let golden = golden();
    let encoders = encoders(&golden);
    assert!(golden.prompts.len() > 150);
    for case in &golden.prompts {
        let encoder = &encoders[&(case.template.clone(), case.tokenizer.clone())];
        let about = format!("{} with {}: {}", case.template, case.tokenizer, case.record);
        assert_eq!(encoder.prompt(&case.record).unwrap(), case.ids, "{about}");
    }
    let case = &golden.prompts[0];
    let encoder = ChatEncoder::new(
        template(&case.template, &golden),
        &tokenizer(&case.tokenizer),
    );
    let begun = encoder.with_beginning(vec![7, 8]);
    assert_eq!(
        begun.prompt(&case.record).unwrap(),
        [&[7, 8], &case.ids[..]].concat()
    );
}

#[test]
fn templates_begin_with_a_special_token_and_end_answers_with_stops() {
    let golden = golden();
    check_table("chat", |row| {
        let (kind, row) = row.split_once(' ').unwrap();
        let (source, tokenizer_name) = row.rsplit_once(' ').unwrap();
        let tokenizer = tokenizer(tokenizer_name);
        let template = match serde_json::from_str::<String>(source) {
            Ok(source) => ChatTemplate::parse("test", &source).unwrap(),
            Err(_) => template(source, &golden),
        };
        let encoder = ChatEncoder::new(template, &tokenizer);
        if kind == "begins" {
            let Some(token) = encoder.begins_with() else {
                return "none".to_owned();
            };
            assert_eq!(tokenizer.special_id(&token.name), Some(token.id));
            return token.name;
        }
        let stops = encoder.stops();
        let end = tokenizer.end_of_text();
        assert!(end.is_none_or(|end| stops.tokens.contains(&end)), "{row}");
        assert!(stops.tokens.is_sorted_by(|a, b| a < b), "{row}");
        let ids = stops.tokens.iter();
        let names = ids.map(|&id| tokenizer.decode(&[id]).unwrap());
        format!("{:?} {:?}", names.collect::<Vec<_>>(), stops.strings)
    });
}

/// The text contains the names, but only the template's special tokens are in the ids.
#[test]
fn special_token_names_in_contents_are_plain_text() {
    let golden = golden();
    let hostile: Vec<&Case> = golden.cases.iter().filter(|case| case.hostile).collect();
    assert!(hostile.len() >= 9);
    for case in hostile {
        let tokenizer = tokenizer(&case.tokenizer);
        let special: Vec<u32> = tokenizer
            .special_tokens()
            .into_iter()
            .map(|(_, id)| id)
            .collect();
        let found = case.ids.iter().filter(|id| special.contains(id)).count();
        let in_text = tokenizer.encode_with_special(&case.text).unwrap();
        let in_text = in_text.iter().filter(|id| special.contains(id)).count();
        assert!(found < in_text, "{}: {found} of {in_text}", case.record);
    }
}

#[test]
fn encoders_are_shared_between_threads() {
    let golden = golden();
    let case = &golden.cases[0];
    let encoder = ChatEncoder::new(
        template(&case.template, &golden),
        &tokenizer(&case.tokenizer),
    );
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert_eq!(encoder.encode(&case.record).unwrap().ids, case.ids));
        }
    });
}

#[test]
fn special_tokens_are_encoded_by_name_only_on_request() {
    let tokenizer = tokenizer("tokenizer");
    let end = tokenizer.special_id("<|im_end|>").unwrap();
    assert_eq!(tokenizer.special_id("<think>"), None);
    assert_eq!(tokenizer.special_tokens().len(), 14);
    let plain = tokenizer.encode("a<|im_end|>").unwrap();
    assert!(!plain.contains(&end));
    let found = tokenizer
        .encode_with_special("a<|im_end|><|im_end|")
        .unwrap();
    assert_eq!(found[..2], [tokenizer.encode("a").unwrap()[0], end]);
    assert_eq!(found[2..], tokenizer.encode("<|im_end|").unwrap());

    let gpt2 = Tokenizer::builtin(TokenizerKind::Gpt2).unwrap();
    assert_eq!(
        gpt2.special_tokens(),
        [("<|endoftext|>".to_owned(), 50_256)]
    );
    assert_eq!(
        gpt2.encode_with_special("Hello<|endoftext|> world")
            .unwrap(),
        [15_496, 50_256, 995]
    );
    let bytes = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
    assert_eq!(
        bytes.encode_with_special("é<|endoftext|>").unwrap(),
        [195, 169, 256]
    );
    let chars = Tokenizer::char_from_alphabet("ab<|>".chars()).unwrap();
    assert_eq!(chars.encode_with_special("<a|b>").unwrap(), [0, 2, 4, 3, 1]);
}

#[test]
fn missing_special_tokens_are_listed() {
    let missing = |name: &str, tokenizer_name: &str| {
        let golden = golden();
        ChatEncoder::new(template(name, &golden), &tokenizer(tokenizer_name))
            .missing()
            .to_vec()
    };
    assert_eq!(missing("chatml", "gpt2"), ["<|im_end|>", "<|im_start|>"]);
    assert!(missing("chatml", "tokenizer").is_empty());
    assert!(missing("mistral", "llama").is_empty());
    assert_eq!(missing("mistral", "gpt2"), ["</s>", "<s>"]);
    assert!(missing("headings", "gpt2").is_empty());
}

/// tiktoken's ids for `Hello world` with GPT-2 are 15496 and 995.
#[test]
fn completions_and_their_ends_are_targets() {
    let encoder = ChatEncoder::new(ChatTemplate::chatml().unwrap(), &tokenizer("gpt2"));
    let encode = |prompt: &str, completion: &str| {
        let record = serde_json::json!({"prompt": prompt, "completion": completion});
        let tokens = encoder.encode(&record.to_string()).unwrap();
        tokens
            .ids
            .into_iter()
            .zip(tokens.learnt)
            .collect::<Vec<_>>()
    };
    let expected = [(15_496, false), (995, true), (50_256, true)];
    assert_eq!(encode("Hello", " world"), expected);
    assert_eq!(
        encode("Hello wor", "ld"),
        expected,
        "a token that is partly the completion's"
    );
    assert_eq!(
        encode("Hello world", ""),
        [(15_496, false), (995, false), (50_256, true)]
    );
    assert_eq!(
        encode("", "Hello world"),
        [(15_496, true), (995, true), (50_256, true)]
    );
    assert!(
        encode("", "<|endoftext|>").len() > 2,
        "the name of a special token is text"
    );
}

fn learnt_text(template: &str, record: serde_json::Value) -> Result<String, String> {
    let tokenizer = tokenizer("tokenizer");
    let encoder = ChatEncoder::new(ChatTemplate::parse("test", template).unwrap(), &tokenizer);
    let tokens = encoder
        .encode(&record.to_string())
        .map_err(|error| error.to_string())?;
    let learnt = tokens
        .ids
        .iter()
        .zip(&tokens.learnt)
        .filter(|(_, learnt)| **learnt);
    let ids: Vec<u32> = learnt.map(|(&id, _)| id).collect();
    Ok(tokenizer.decode(&ids).unwrap())
}

const MARKED: &str = "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }};\
                      {% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}";
const UNMARKED: &str = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}\
                        {% if add_generation_prompt %}assistant:{% endif %}";

#[test]
fn answers_with_weight_0_or_in_a_prompt_are_not_targets() {
    let message = |role: &str, content: &str| serde_json::json!({"role": role, "content": content});
    let messages = [
        message("user", "a"),
        message("assistant", "b"),
        message("user", "c"),
        message("assistant", "d"),
    ];
    for template in [MARKED, UNMARKED] {
        let learnt = |record| learnt_text(template, record).unwrap();
        assert_eq!(learnt(serde_json::json!({"messages": messages})), "b;d;");
        let mut weighed = messages.clone();
        weighed[1]["weight"] = 0.into();
        weighed[3]["weight"] = 1.into();
        assert_eq!(learnt(serde_json::json!({"messages": weighed})), "d;");
        let split = serde_json::json!({"prompt": messages[..3], "completion": messages[3..]});
        assert_eq!(learnt(split), "d;");
    }
    let twice = MARKED.replace(
        "{{ m.content }};{% endgeneration %}",
        "{% endgeneration %}{% generation %}x{% endgeneration %}",
    );
    let mut weighed = messages;
    weighed[1]["weight"] = 0.into();
    let message = learnt_text(&twice, serde_json::json!({"messages": weighed})).unwrap_err();
    assert!(
        message.contains("hold 2 of the assistant's, not all to be learnt"),
        "{message}"
    );
}

#[test]
fn the_end_of_an_answer_is_a_target_but_not_the_line_break_after_it() {
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    let record = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#;
    let learnt = learnt_text(template, serde_json::from_str(record).unwrap()).unwrap();
    assert_eq!(learnt, "b<|im_end|>");
}

/// Parts are joined for a template that would print a list.
#[test]
fn every_template_reads_contents_in_parts() {
    let parts = serde_json::json!([{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]);
    let record = serde_json::json!({"messages": [{"role": "user", "content": parts}, {"role": "assistant", "content": parts}]});
    assert_eq!(learnt_text(MARKED, record).unwrap(), "bc;");
}

/// The time is fixed per template, for all conversations.
#[test]
fn templates_see_the_given_time() {
    let template =
        ChatTemplate::with_time("test", "{{ strftime_now('%d %b %Y') }}", 1_700_000_000).unwrap();
    let record = r#"{"messages": [{"role": "user", "content": "a"}]}"#;
    let ChatExample::Conversation(conversation) = ChatExample::from_json(record).unwrap() else {
        panic!("a conversation");
    };
    assert_eq!(
        template.render(&conversation, false).unwrap(),
        "14 Nov 2023"
    );
}

/// The text of a conversation with one message.
fn rendered(source: &str) -> (ChatTemplate, String) {
    let template = ChatTemplate::parse("test", source).unwrap();
    let record = r#"{"messages": [{"role": "user", "content": "m"}]}"#;
    let text = template.render(&Conversation::from_json(record).unwrap(), false);
    (template, text.unwrap())
}

/// The expected text is that of Jinja 3.1.
#[test]
fn line_breaks_of_templates_are_normalized() {
    let source = "a\r\n{% if 1 %}\r\nb\r{% endif %}\r\nc{{ 'x\r\ny' }}\r\n";
    let (template, text) = rendered(source);
    assert_eq!(text, "a\nb\ncx\ny");
    assert_eq!(template.source(), source);
}

#[test]
fn templates_that_write_system_messages_are_recognized() {
    let all = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
    let rejected =
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}";
    let ignored = "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}";
    for (source, writes) in [
        (all.to_owned(), true),
        (format!("{rejected}{all}"), false),
        (ignored.to_owned(), false),
    ] {
        let template = rendered(&source).0;
        for _ in 0..2 {
            assert_eq!(template.writes_system(), Ok(writes), "{source}");
        }
    }
}
