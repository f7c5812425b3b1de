//! Fields that are null, which count as missing.

use emberlm_generate::json_schema::with_integers;
use serde_json::{Map, Value};

/// Names of fields with data of the client at any level, which stay as they are: JSON schemas, arguments of calls and
/// metadata.
const DATA: [&str; 6] = [
    "parameters",
    "input_schema",
    "schema",
    "json",
    "arguments",
    "metadata",
];
/// Arguments of calls, which are not those of the body itself.
const DATA_OF_ITEMS: &str = "input";
/// Those of the body itself. Within a `response_format`, `json_schema` has fields of the API.
const DATA_OF_BODY: [&str; 5] = [
    "format",
    "guided_json",
    "json_schema",
    "chat_template_kwargs",
    "documents",
];

/// Removes fields that are null and writes whole floats, such as 5.0, as integers, at every level except in data of the
/// client.
pub(crate) fn without_nulls(body: Value) -> Value {
    match body {
        Value::Object(fields) => object(fields, |name| {
            DATA.contains(&name) || DATA_OF_BODY.contains(&name)
        }),
        body => inner(body),
    }
}

fn object(fields: Map<String, Value>, is_data: impl Fn(&str) -> bool) -> Value {
    let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
    let fields = fields.map(|(name, value)| {
        let value = match is_data(&name) {
            true => value,
            false => inner(value),
        };
        (name, value)
    });
    Value::Object(fields.collect())
}

fn inner(value: Value) -> Value {
    match value {
        Value::Array(values) => values.into_iter().map(inner).collect(),
        Value::Object(fields) => {
            object(fields, |name| DATA.contains(&name) || name == DATA_OF_ITEMS)
        }
        value => with_integers(value),
    }
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
            "messages": [{ "role": "user", "content": [{ "type": "text", "text": "a", "detail": null, "input": { "b": null } }], "name": null }],
            "tools": [{ "function": { "parameters": { "enum": [null, 5.0], "const": null }, "description": null } }, { "function": { "parameters": null } }],
            "response_format": { "json_schema": { "strict": null, "schema": { "const": null } } },
            "guided_json": { "const": null },
            "chat_template_kwargs": { "a": null },
            "metadata": { "a": null },
            "logit_bias": { "5": null },
            "input": [null],
        });
        let expected = json!({
            "max_tokens": 5,
            "top_p": 0.5,
            "stream_options": {},
            "messages": [{ "role": "user", "content": [{ "type": "text", "text": "a", "input": { "b": null } }] }],
            "tools": [{ "function": { "parameters": { "enum": [null, 5.0], "const": null } } }, { "function": {} }],
            "response_format": { "json_schema": { "schema": { "const": null } } },
            "guided_json": { "const": null },
            "chat_template_kwargs": { "a": null },
            "metadata": { "a": null },
            "logit_bias": {},
            "input": [null],
        });
        assert_eq!(without_nulls(body), expected);
    }
}
