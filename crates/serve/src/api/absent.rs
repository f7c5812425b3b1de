//! Fields that count as missing: those that are null, and those with the default of OpenAI's API that the server does not
//! have.

use emberlm_generate::json_schema::with_integers;
use serde_json::{Map, Value};

/// Names of fields with data of the client, which stay as they are: JSON schemas, arguments of calls and metadata.
const DATA: [&str; 5] = ["parameters", "schema", "json", "arguments", "metadata"];

/// A field that the server does not have, by its path, and its defaults as JSON. The path of the items of a list ends in
/// `[]`. Fields within an object come before it.
pub(crate) type Default = (&'static str, &'static [&'static str]);

const PROMPT_CACHE: [Default; 4] = [
    ("prompt_cache_options.mode", &["\"implicit\""]),
    ("prompt_cache_options.ttl", &["\"30m\""]),
    ("prompt_cache_options", &["{}"]),
    // The default depends on an organization's policy.
    ("prompt_cache_retention", &["\"24h\"", "\"in_memory\""]),
];

/// The defaults depend on the model.
const EFFORT: &[&str] = &["\"medium\"", "\"none\""];

/// The defaults of chat completions.
pub(crate) const CHAT: [Default; 9] = [
    ("function_call", &["\"none\"", "\"auto\""]),
    ("modalities", &["[\"text\"]"]),
    ("reasoning_effort", EFFORT),
    ("service_tier", &["\"auto\""]),
    ("verbosity", &["\"medium\""]),
    PROMPT_CACHE[0],
    PROMPT_CACHE[1],
    PROMPT_CACHE[2],
    PROMPT_CACHE[3],
];

/// The defaults of completions.
pub(crate) const COMPLETIONS: [Default; 1] = [("best_of", &["1"])];

/// The defaults of responses.
pub(crate) const RESPONSES: [Default; 15] = [
    ("service_tier", &["\"auto\""]),
    ("reasoning.effort", EFFORT),
    ("reasoning.context", &["\"auto\""]),
    ("reasoning.mode", &["\"standard\""]),
    ("reasoning", &["{}"]),
    ("text.verbosity", &["\"medium\""]),
    ("background_options.completion_window", &["\"soonest\""]),
    ("background_options", &["{}"]),
    ("image.context_compression", &["\"auto\""]),
    ("image", &["{}"]),
    ("tools[].defer_loading", &["false"]),
    PROMPT_CACHE[0],
    PROMPT_CACHE[1],
    PROMPT_CACHE[2],
    PROMPT_CACHE[3],
];

/// Removes fields that are null and writes whole floats, such as 5.0, as integers, at every level except in data of the
/// client.
pub(crate) fn normalized(value: Value) -> Value {
    match value {
        Value::Array(values) => values.into_iter().map(normalized).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            let fields = fields.map(|(name, value)| {
                let value = match DATA.contains(&&*name) {
                    true => value,
                    false => normalized(value),
                };
                (name, value)
            });
            Value::Object(fields.collect())
        }
        value => with_integers(value),
    }
}

/// Removes fields that have one of their `defaults`.
pub(crate) fn remove_defaults(fields: &mut Map<String, Value>, defaults: &[Default]) {
    for (path, values) in defaults {
        remove(fields, path, values);
    }
}

fn remove(fields: &mut Map<String, Value>, path: &str, values: &[&str]) {
    let Some((name, rest)) = path.split_once('.') else {
        let is_default = |value: &Value| {
            let default =
                |text: &&str| serde_json::from_str(text).is_ok_and(|it: Value| it == *value);
            values.iter().any(default)
        };
        if fields.get(path).is_some_and(is_default) {
            fields.shift_remove(path);
        }
        return;
    };
    match name.strip_suffix("[]") {
        Some(name) => {
            let items = fields.get_mut(name).and_then(Value::as_array_mut);
            let items = items.into_iter().flatten();
            items
                .filter_map(Value::as_object_mut)
                .for_each(|item| remove(item, rest, values));
        }
        None => {
            if let Some(inner) = fields.get_mut(name).and_then(Value::as_object_mut) {
                remove(inner, rest, values);
            }
        }
    }
}

/// The defaults of a field, for the error about another value. `None` if it has none.
pub(crate) fn defaults_of(name: &str, defaults: &[Default]) -> Option<String> {
    let found = defaults.iter().find(|(path, _)| *path == name);
    found.map(|(_, values)| values.join(" or "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn data_stays_as_it_is() {
        let body = json!({
            "stop": null,
            "max_tokens": 5.0,
            "top_p": 0.5,
            "stream_options": { "include_usage": null },
            "messages": [{ "role": "user", "content": [{ "type": "text", "text": "a", "detail": null }], "name": null }],
            "tools": [{ "function": { "parameters": { "enum": [null, 5.0], "const": null }, "description": null } }, { "function": { "parameters": null } }],
            "metadata": { "a": null },
            "logit_bias": { "5": null },
            "input": [null],
        });
        let expected = json!({
            "max_tokens": 5,
            "top_p": 0.5,
            "stream_options": {},
            "messages": [{ "role": "user", "content": [{ "type": "text", "text": "a" }] }],
            "tools": [{ "function": { "parameters": { "enum": [null, 5.0], "const": null } } }, { "function": {} }],
            "metadata": { "a": null },
            "logit_bias": {},
            "input": [null],
        });
        assert_eq!(normalized(body), expected);
    }

    #[test]
    fn only_defaults_are_removed() {
        let read = |value: Value| -> Map<String, Value> { serde_json::from_value(value).unwrap() };
        let mut body = read(json!({
            "reasoning": { "effort": "medium" }, "text": { "verbosity": "medium" }, "service_tier": "auto",
            "tools": [{ "defer_loading": false }, { "defer_loading": true }],
        }));
        remove_defaults(&mut body, &RESPONSES);
        let kept = json!({ "text": {}, "tools": [{}, { "defer_loading": true }] });
        assert_eq!(Value::Object(body), kept);
        let mut body = read(json!({ "reasoning": { "effort": "high" }, "service_tier": "flex" }));
        let before = body.clone();
        remove_defaults(&mut body, &RESPONSES);
        assert_eq!(body, before);
    }

    #[test]
    fn every_default_is_json() {
        for (path, values) in CHAT.iter().chain(&COMPLETIONS).chain(&RESPONSES) {
            for value in *values {
                assert!(
                    serde_json::from_str::<Value>(value).is_ok(),
                    "{path}: {value}"
                );
            }
        }
    }
}
