//! Schemas of arguments that allow declared properties only.
//!
//! By JSON Schema, an object may have further properties unless its schema excludes them, and generators of schemas rarely
//! write that. Small models then add properties without end. Arguments without them are valid, too.

use serde_json::{Map, Value};

/// Keywords beside which the properties of an object are not only its `properties`.
const OPEN: [&str; 12] = [
    "additionalProperties",
    "patternProperties",
    "unevaluatedProperties",
    "minProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "dependentSchemas",
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
];
/// Keywords with a schema, or a list of schemas.
const INNER: [&str; 5] = [
    "items",
    "prefixItems",
    "additionalProperties",
    "anyOf",
    "oneOf",
];
/// Keywords with schemas by name.
const NAMED: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// The schema of a function's arguments, in which objects have their declared properties only. An object that says more about
/// its properties, such as `"additionalProperties": true`, is unchanged.
pub(crate) fn closed(schema: &Map<String, Value>) -> Value {
    let mut closed = Value::Object(schema.clone());
    // Schemas that apply to one object together must not exclude each other's properties.
    if has_keyword(&closed, "allOf") {
        close_one(&mut closed);
    } else {
        close(&mut closed);
    }
    closed
}

/// True if a value, or one within it, has this key.
fn has_keyword(value: &Value, keyword: &str) -> bool {
    match value {
        Value::Object(fields) => fields
            .iter()
            .any(|(name, value)| name == keyword || has_keyword(value, keyword)),
        Value::Array(values) => values.iter().any(|value| has_keyword(value, keyword)),
        _ => false,
    }
}

/// Closes a schema and those within it.
fn close(schema: &mut Value) {
    let has_properties = schema.get("properties").is_some();
    close_one(schema);
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    for (name, value) in fields {
        let name = name.as_str();
        // Alternatives beside properties apply to the same object.
        let is_same = has_properties && matches!(name, "anyOf" | "oneOf");
        match value {
            Value::Array(schemas) if INNER.contains(&name) && !is_same => {
                schemas.iter_mut().for_each(close);
            }
            Value::Object(schemas) if NAMED.contains(&name) => {
                schemas.values_mut().for_each(close);
            }
            value if INNER.contains(&name) && !is_same => close(value),
            _ => {}
        }
    }
}

/// Closes a schema if it declares properties and says no more about them.
fn close_one(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    let declared = fields.get("properties").and_then(Value::as_object);
    let required = fields.get("required").and_then(Value::as_array);
    let mut required = required.into_iter().flatten().filter_map(Value::as_str);
    let is_closed = declared.is_some_and(|declared| {
        !declared.is_empty() && required.all(|name| declared.contains_key(name))
    });
    if is_closed && !OPEN.iter().any(|keyword| fields.contains_key(*keyword)) {
        fields.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_that_declare_properties_are_closed() {
        let closing = |schema: Value| closed(schema.as_object().unwrap());
        let text = || json!({ "type": "string" });
        let open = || json!({ "properties": { "a": text() } });
        let shut = || json!({ "properties": { "a": text() }, "additionalProperties": false });
        for (schema, expected) in [
            (open(), shut()),
            (
                json!({ "properties": { "b": open(), "c": { "items": open() } }, "$defs": { "d": open() } }),
                json!({ "properties": { "b": shut(), "c": { "items": shut() } }, "$defs": { "d": shut() }, "additionalProperties": false }),
            ),
            (
                json!({ "anyOf": [open(), { "prefixItems": [open()] }], "additionalProperties": open() }),
                json!({ "anyOf": [shut(), { "prefixItems": [shut()] }], "additionalProperties": shut() }),
            ),
            // In values, names are no keywords.
            (
                json!({ "properties": { "properties": text() }, "enum": [open()] }),
                json!({ "properties": { "properties": text() }, "enum": [open()], "additionalProperties": false }),
            ),
        ] {
            assert_eq!(closing(schema.clone()), expected, "{schema}");
        }
        for schema in [
            json!({}),
            json!({ "type": "object" }),
            json!({ "properties": {} }),
            json!({ "properties": { "a": text() }, "additionalProperties": true }),
            json!({ "properties": { "a": text() }, "required": ["b"] }),
            json!({ "properties": { "a": text() }, "minProperties": 2 }),
            json!({ "properties": { "a": text() }, "anyOf": [open(), open()] }),
            json!({ "properties": { "a": text() }, "patternProperties": { "^b": {} } }),
            json!({ "allOf": [open(), open()] }),
            json!({ "properties": 5, "items": "x", "$defs": [] }),
        ] {
            assert_eq!(closing(schema.clone()), schema);
        }
    }
}
