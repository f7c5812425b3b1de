//! Every call format with a template in its style: written by the template, allowed by the grammar, read by the parser.

mod templates;

use emberlm_generate::{Chooser, ChooserConfig, Constraint, SamplerConfig, Vocabulary};
use emberlm_tokenizer::chat::{ChatTemplate, Conversation};
use serde_json::{Map, Value, json};

use super::format::{ArgumentsForm, ToolFormat};
use super::formats::FORMATS;
use super::grammar::tool_grammar;
use super::parser::ToolCallParser;
use super::tool_use::{Function, ToolUse};
use super::types::CallFormat;
use crate::answer_delta::AnswerDelta;
use templates::{TEMPLATES, template};

const END: u32 = 256;

/// The output of a model that prefers to write `wanted` and then to end. Where the grammar does not allow the next
/// byte, it writes the first allowed one.
pub(super) fn preferred(
    format: &ToolFormat,
    functions: &[Function<'_>],
    required: bool,
    wanted: &str,
) -> String {
    let tool_use = ToolUse {
        required,
        parallel: true,
    };
    let grammar = tool_grammar(format, functions, tool_use);
    let texts = (0..=255).map(|byte| vec![byte]).chain([Vec::new()]);
    let vocabulary = Vocabulary::new(texts.collect(), &[END]).unwrap();
    let constraint = Constraint::new(&vocabulary, grammar.clone());
    let constraint = constraint.unwrap_or_else(|error| panic!("{error}\n{}", grammar.source()));
    let config = ChooserConfig {
        sampler: SamplerConfig::greedy(),
        constraint: Some(constraint),
        ..ChooserConfig::default()
    };
    let mut chooser = Chooser::new(&config, &[], 257, 0).unwrap();
    let mut bytes = Vec::new();
    while !chooser.is_complete() && bytes.len() < wanted.len() + 200 {
        let mut logits = vec![0.0; 257];
        let next = wanted.as_bytes().get(bytes.len());
        logits[next.map_or(END as usize, |&byte| byte.into())] = 1.0;
        match chooser.choose(&logits).unwrap().id {
            END => break,
            id => bytes.push(id as u8),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The output of a model that prefers to write `wanted`, with the functions `count` and `now`.
pub(super) fn with_two_functions(template: &str, required: bool, wanted: &str) -> String {
    let format = ToolFormat::of_template(template).unwrap();
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let functions = [
        Function {
            name: "count",
            parameters: schema.as_object(),
        },
        Function {
            name: "now",
            parameters: None,
        },
    ];
    preferred(format, &functions, required, wanted)
}

/// The text of an answer in parts of `size` characters, and its calls.
pub(super) fn parsed(
    format: &CallFormat,
    answer: &str,
    size: usize,
) -> (String, Vec<(String, String)>) {
    let mut parser = ToolCallParser::new(format.clone());
    let chars: Vec<char> = answer.chars().collect();
    let mut deltas = Vec::new();
    for part in chars.chunks(size) {
        deltas.extend(parser.push(&part.iter().collect::<String>()));
    }
    deltas.extend(parser.finish());
    let (mut text, mut calls) = (String::new(), Vec::<(String, String)>::new());
    for delta in deltas {
        match delta {
            AnswerDelta::Reasoning(more) => panic!("reasoning: {more}"),
            AnswerDelta::Text(more) => text += &more,
            AnswerDelta::Call { name } => calls.push((name, String::new())),
            AnswerDelta::Arguments(more) => calls.last_mut().unwrap().1 += &more,
        }
    }
    (text, calls)
}

/// The functions of the calls below, with the schemas of their arguments.
fn functions() -> Vec<(&'static str, Option<Value>)> {
    let find = json!({
        "type": "object",
        "properties": {
            "query": { "type": "string" },
            "unit": { "enum": ["km", "mi"] },
            "limit": { "type": "integer", "minimum": 1 },
            "exact": { "type": "boolean" },
            "tags": { "type": "array", "items": { "type": "string" } },
            "place": { "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"], "additionalProperties": false },
            "note": { "anyOf": [{ "type": "string" }, { "type": "null" }] },
        },
        "required": ["query", "limit"],
        "additionalProperties": false,
    });
    vec![("find", Some(find)), ("find_all-2", None), ("now", None)]
}

fn borrowed<'a>(functions: &'a [(&'static str, Option<Value>)]) -> Vec<Function<'a>> {
    let functions = functions.iter().map(|(name, schema)| Function {
        name,
        parameters: schema.as_ref().and_then(Value::as_object),
    });
    functions.collect()
}

/// Calls of the functions, each list for one answer.
fn answers() -> Vec<Vec<(&'static str, Value)>> {
    let all = json!({ "query": "Köln\n\"a\" < b\\ {x: [1, 2]} 😀", "unit": "mi", "limit": 10, "exact": true, "tags": ["a, b", "]}"],
        "place": { "city": "<Oslo>" }, "note": "line\n\nline" });
    vec![
        vec![("now", json!({}))],
        vec![("find", json!({ "query": "", "limit": 1 }))],
        vec![("find", json!({ "query": " 12 ", "limit": 3, "note": null }))],
        vec![("find", all.clone())],
        vec![("find_all-2", json!({})), ("find", all), ("now", json!({}))],
    ]
}

fn written(format: &ToolFormat, calls: &[(&str, Value)]) -> String {
    let calls: Vec<(&str, &Map<String, Value>)> = calls
        .iter()
        .map(|(name, arguments)| (*name, arguments.as_object().unwrap()))
        .collect();
    format.written(&calls)
}

#[test]
fn there_is_a_template_of_every_format() {
    let found = TEMPLATES.map(|(models, calls)| template(models, calls).1.models());
    for format in FORMATS {
        assert!(found.contains(&format.models()), "{}", format.models());
    }
}

#[test]
fn templates_write_what_the_grammar_allows_and_the_parser_reads() {
    let functions = functions();
    let functions = borrowed(&functions);
    for (models, calls) in TEMPLATES {
        let (source, format) = template(models, calls);
        let template = ChatTemplate::parse(models, &source).unwrap();
        let call_format = CallFormat::new(format, functions.iter().copied());
        for calls in answers() {
            if calls.len() > 1 && format.next.is_none() {
                continue;
            }
            let list: Vec<Value> = calls
                .iter()
                .map(|(name, arguments)| {
                    json!({ "id": "abcdefghi", "type": "function", "function": { "name": name, "arguments": arguments } })
                })
                .collect();
            let record = json!({ "messages": [{ "role": "assistant", "tool_calls": list }] });
            let conversation = Conversation::from_json(&record.to_string()).unwrap();
            let text = template.render(&conversation, false).unwrap();
            assert_eq!(text, written(format, &calls), "{models}");
            assert_eq!(preferred(format, &functions, true, &text), text, "{models}");
            let said = format!("So: é\n\n{text}");
            if !format.open.is_empty() {
                assert_eq!(
                    preferred(format, &functions, false, &said),
                    said,
                    "{models}"
                );
                let found = parsed(&call_format, &said, 1);
                assert_eq!(found.0, "So: é", "{models}");
            }
            for size in [1, 2, 3, 7, 50, text.len()] {
                let (said, found) = parsed(&call_format, &text, size);
                assert_eq!(said, "", "{models}");
                let found: Vec<(&str, Value)> = found
                    .iter()
                    .map(|(name, arguments)| {
                        let arguments = serde_json::from_str(arguments);
                        (
                            name.as_str(),
                            arguments
                                .unwrap_or_else(|error| panic!("{models}: {error}: {found:?}")),
                        )
                    })
                    .collect();
                assert_eq!(found, calls, "{models}");
            }
        }
    }
}

/// The beginning of JSON: with the open strings, lists and objects closed, it can be read.
fn is_beginning_of_json(text: &str) -> bool {
    let mut ends = Vec::new();
    let (mut in_text, mut escaped) = (false, false);
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_text => escaped = true,
            '"' => in_text = !in_text,
            _ if in_text => {}
            '{' => ends.push('}'),
            '[' => ends.push(']'),
            '}' | ']' if ends.pop() != Some(c) => return false,
            _ => {}
        }
    }
    let rest: String = ends.iter().rev().collect();
    // The text may end within a string, an escape, a key, a number or a word.
    let mut closed = text.to_owned();
    if escaped {
        closed.push('n');
    }
    if in_text {
        closed.push('"');
    }
    [
        "",
        "null",
        ": null",
        "\"a\": null",
        "0",
        "rue",
        "ue",
        "e",
        "alse",
        "lse",
        "se",
        "ull",
        "ll",
        "l",
        ", \"z\": null",
    ]
    .iter()
    .any(|middle| serde_json::from_str::<Value>(&format!("{closed}{middle}{rest}")).is_ok())
}

#[test]
fn truncated_answers_have_the_beginning_of_their_arguments() {
    let functions = functions();
    let functions = borrowed(&functions);
    for (models, calls) in TEMPLATES {
        let format = template(models, calls).1;
        let call_format = CallFormat::new(format, functions.iter().copied());
        for calls in answers() {
            if calls.len() > 1 && format.next.is_none() {
                continue;
            }
            let text = written(format, &calls);
            let ends = text.char_indices().map(|(end, _)| end);
            let whole = parsed(&call_format, &text, text.len()).1;
            for end in ends {
                let (_, found) = parsed(&call_format, &text[..end], 5);
                for ((name, arguments), (expected, whole)) in found.iter().zip(&whole) {
                    assert_eq!(name, expected, "{models}");
                    assert!(
                        whole.starts_with(arguments.as_str()),
                        "{models}: {arguments}"
                    );
                    let is_beginning = arguments.is_empty() || is_beginning_of_json(arguments);
                    assert!(is_beginning, "{models}: {arguments}");
                }
            }
        }
    }
}

#[test]
fn answers_that_violate_the_grammar_do_not_fail() {
    let functions = functions();
    let functions = borrowed(&functions);
    for (models, calls) in TEMPLATES {
        let format = template(models, calls).1;
        let call_format = CallFormat::new(format, functions.iter().copied());
        let text = written(
            format,
            &[("find", json!({ "query": "é", "limit": 3, "exact": false }))],
        );
        // Without each character, with each one doubled, and with another in its place.
        for (at, c) in text.char_indices() {
            let (before, after) = (&text[..at], &text[at + c.len_utf8()..]);
            for middle in [
                String::new(),
                format!("{c}{c}"),
                "é".to_owned(),
                "\"".to_owned(),
                "<".to_owned(),
            ] {
                let changed = format!("{before}{middle}{after}");
                let found = parsed(&call_format, &changed, 1);
                assert_eq!(
                    found,
                    parsed(&call_format, &changed, changed.len()),
                    "{models}: {changed}"
                );
                if let ArgumentsForm::Tagged(_) = format.arguments {
                    for (_, arguments) in &found.1 {
                        let is_beginning = arguments.is_empty() || is_beginning_of_json(arguments);
                        assert!(is_beginning, "{models}: {changed}: {arguments}");
                    }
                }
            }
        }
    }
}

/// The first format whose parameters are between tags without quotes.
fn coder() -> &'static ToolFormat {
    template(TEMPLATES[1].0, TEMPLATES[1].1).1
}

#[test]
fn values_between_tags_have_the_types_of_the_schema() {
    let schema = json!({
        "type": "object",
        "properties": {
            "text": { "type": "string" },
            "number": { "type": "number" },
            "either": { "type": ["string", "number", "null"] },
            "any": {},
            "list": { "$ref": "#/$defs/list" },
        },
        "$defs": { "list": { "type": "array" } },
    });
    let function = Function {
        name: "f",
        parameters: schema.as_object(),
    };
    let format = CallFormat::new(coder(), [function]);
    for (name, value, expected) in [
        ("text", "5", json!("5")),
        ("text", "null", json!("null")),
        ("text", "\"5\"", json!("\"5\"")),
        ("text", "a\n</parameter> b", json!("a\n</parameter> b")),
        ("number", "5.5", json!(5.5)),
        ("number", "five", json!("five")),
        ("either", "5", json!(5)),
        ("either", "null", json!(null)),
        ("either", "\"5\"", json!("\"5\"")),
        ("either", "[5]", json!("[5]")),
        ("any", "[5]", json!([5])),
        ("any", "[5", json!("[5")),
        ("list", "[\"</parameter>\"]", json!(["</parameter>"])),
        ("unknown", "true", json!(true)),
        ("unknown", "true?", json!("true?")),
    ] {
        let answer = format!(
            "<tool_call>\n<function=f>\n<parameter={name}>\n{value}\n</parameter>\n</function>\n</tool_call>"
        );
        for size in 1..answer.len() {
            let (_, calls) = parsed(&format, &answer, size);
            let arguments: Value = serde_json::from_str(&calls[0].1).unwrap();
            assert_eq!(arguments, json!({ name: expected }), "{name} {value}");
        }
    }
    // A repetition is not written.
    let parameter = |value: &str| format!("<parameter=text>\n{value}\n</parameter>\n");
    let answer = format!(
        "<tool_call>\n<function=f>\n{}{}</function>\n</tool_call>",
        parameter("a"),
        parameter("b")
    );
    let (_, calls) = parsed(&format, &answer, 1);
    assert_eq!(calls, [("f".to_owned(), "{\"text\": \"a\"}".to_owned())]);
}

#[test]
fn the_grammar_of_tagged_parameters_follows_the_schema() {
    let schema = json!({
        "type": "object",
        "properties": {
            "city": { "enum": ["Köln", "Oslo"] },
            "code": { "type": "string", "minLength": 2, "maxLength": 3 },
            "days": { "type": "integer", "minimum": 1, "maximum": 9 },
            "kind": { "anyOf": [{ "const": "a" }, { "type": "integer" }] },
        },
        "required": ["city", "days"],
    });
    let function = Function {
        name: "f",
        parameters: schema.as_object(),
    };
    let free = json!({ "type": "object" });
    let open = Function {
        name: "open",
        parameters: free.as_object(),
    };
    for (models, calls) in TEMPLATES {
        let format = template(models, calls).1;
        let ArgumentsForm::Tagged(_) = format.arguments else {
            continue;
        };
        let functions = [function, open];
        let call = |name: &str, arguments: Value| written(format, &[(name, arguments)]);
        for text in [
            call("f", json!({ "city": "Oslo", "days": 3 })),
            call("f", json!({ "city": "Köln", "code": "äöü", "days": 9 })),
            call(
                "f",
                json!({ "city": "Köln", "code": "ab", "days": 9, "kind": "a" }),
            ),
            call("f", json!({ "city": "Köln", "days": 9, "kind": 17 })),
            call("open", json!({})),
            call("open", json!({ "a.b-c": 1, "d": "text" })),
        ] {
            assert_eq!(preferred(format, &functions, true, &text), text, "{models}");
        }
        for text in [
            call("f", json!({ "city": "Bonn", "days": 3 })),
            call("f", json!({ "city": "Oslo" })),
            call("f", json!({ "days": 3, "city": "Oslo" })),
            call("f", json!({ "city": "Oslo", "code": "a", "days": 3 })),
            call("f", json!({ "city": "Oslo", "code": "abcd", "days": 3 })),
            call("f", json!({ "city": "Oslo", "days": 10 })),
            call("f", json!({ "city": "Oslo", "days": "three" })),
            call("f", json!({ "city": "Oslo", "days": 3, "kind": "b" })),
            call("f", json!({ "city": "Oslo", "days": 3, "other": 1 })),
            call("g", json!({})),
        ] {
            assert_ne!(preferred(format, &functions, true, &text), text, "{models}");
        }
    }
    // The closing tag ends a text wherever it is.
    let text = "<tool_call>\n<function=open>\n<parameter=a>\nx</parameter>y\n</parameter>\n</function>\n</tool_call>";
    assert_ne!(preferred(coder(), &[open], true, text), text);
}
