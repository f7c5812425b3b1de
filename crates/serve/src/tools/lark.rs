//! Parts of grammars in Lark's notation: literals, expressions and schemas.

use serde_json::{Map, Value, json};

/// A quoted literal, with escapes as in JSON.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The concatenation of `texts` as one quoted literal; empty if there is no text.
pub(super) fn joined(texts: &[&str]) -> String {
    match &*texts.concat() {
        "" => String::new(),
        text => quoted(text),
    }
}

/// A regular expression, within slashes, that matches exactly `text`.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '\n' => escaped += "\\n",
            '_' | '<' | '>' => escaped.push(c),
            c if c.is_ascii_punctuation() => escaped.extend(['\\', c]),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The schema of the arguments, on a single line: Lark's parser ends a rule at a line break. Restricts
/// whitespace.
pub(super) fn arguments_schema(parameters: Option<&Map<String, Value>>) -> Value {
    let none = || {
        let schema = json!({ "type": "object", "properties": {}, "additionalProperties": false });
        schema.as_object().cloned().unwrap_or_default()
    };
    let mut schema = parameters.cloned().unwrap_or_else(none);
    schema.insert("type".to_owned(), json!("object"));
    with_guidance(schema)
}

/// A schema that restricts whitespace.
pub(super) fn with_guidance(mut schema: Map<String, Value>) -> Value {
    schema.insert(
        "x-guidance".to_owned(),
        json!({ "whitespace_flexible": false, "item_separator": ", ", "key_separator": ": " }),
    );
    schema.into()
}
