use serde_json::{Value, json};

use super::*;
use crate::{Constraint, Grammar};

mod forms;

fn simple(schema: &Value) -> Value {
    simplify(schema, Unsupported::Refuse).unwrap().schema
}

fn refused(schema: &Value) -> String {
    let error = simplify(schema, Unsupported::Refuse).unwrap_err();
    error.to_string()
}

/// Compiles the schema and checks texts that match and texts that do not.
#[track_caller]
fn assert_matches(schema: Value, matching: &[&str], others: &[&str]) {
    let constraint = Constraint::of_bytes(Grammar::JsonSchema(schema.to_string()));
    let constraint = constraint.unwrap_or_else(|error| panic!("{schema}: {error}"));
    for text in matching {
        assert!(constraint.allows(text), "{schema} allows {text}");
    }
    for text in others {
        assert!(!constraint.allows(text), "{schema} does not allow {text}");
    }
}

/// A keyword whose value restricts nothing, beside a `type`, for every keyword that has such a value.
const WITHOUT_EFFECT: [(&str, &str, &str); 63] = [
    ("allOf", "[{}]", "string"),
    ("then", r#"{"minLength": 3}"#, "string"),
    ("else", r#"{"minLength": 3}"#, "string"),
    ("if", r#"{"minLength": 3}"#, "string"),
    ("not", "false", "string"),
    ("nullable", "false", "string"),
    ("minLength", "0", "string"),
    ("minLength", "0.0", "string"),
    ("minLength", "null", "string"),
    ("enum", "null", "string"),
    ("format", r#""binary""#, "string"),
    ("format", r#""password""#, "string"),
    ("format", r#""idn-email""#, "string"),
    ("format", r#""int32""#, "integer"),
    ("format", r#""int64""#, "integer"),
    ("format", r#""double""#, "number"),
    ("format", r#""date""#, "number"),
    ("uniqueItems", "true", "string"),
    ("exclusiveMinimum", "false", "number"),
    ("exclusiveMaximum", "true", "number"),
    ("uniqueItems", "false", "array"),
    ("items", "null", "array"),
    ("additionalItems", "false", "array"),
    ("minItems", "0", "array"),
    ("minContains", "2", "array"),
    ("maxContains", "2", "array"),
    ("unevaluatedItems", "true", "array"),
    ("additionalProperties", "true", "object"),
    ("additionalProperties", "{}", "object"),
    (
        "additionalProperties",
        r#"{"description": "more"}"#,
        "object",
    ),
    ("patternProperties", "{}", "object"),
    ("propertyNames", r#"{"type": "string"}"#, "object"),
    ("propertyNames", "true", "object"),
    ("minProperties", "0", "object"),
    ("unevaluatedProperties", "true", "object"),
    ("unevaluatedProperties", "{}", "object"),
    ("dependentRequired", "{}", "object"),
    ("dependentSchemas", r#"{"a": true}"#, "object"),
    ("dependencies", r#"{"a": []}"#, "object"),
    ("$defs", r#"{"unused": {"uniqueItems": true}}"#, "object"),
    ("definitions", r#"{"unused": 3}"#, "object"),
    ("components", r#"{"schemas": {}}"#, "object"),
    (
        "$schema",
        r#""http://json-schema.org/draft-07/schema#""#,
        "string",
    ),
    ("$schema", r#""urn:other""#, "string"),
    ("$vocabulary", "{}", "string"),
    ("$id", r#""https://example.com/a""#, "string"),
    ("id", r#""a""#, "string"),
    ("$anchor", r#""a""#, "string"),
    ("$dynamicAnchor", r#""a""#, "string"),
    ("$recursiveAnchor", "true", "string"),
    ("$comment", r#""why""#, "string"),
    ("title", r#""A title""#, "string"),
    ("description", "null", "string"),
    ("default", "null", "string"),
    ("examples", r#"["a"]"#, "string"),
    ("deprecated", "true", "string"),
    ("readOnly", "true", "string"),
    ("contentEncoding", r#""base64""#, "string"),
    ("example", r#""a""#, "string"),
    ("discriminator", r#"{"propertyName": "kind"}"#, "object"),
    ("xml", r#"{"name": "a"}"#, "string"),
    ("externalDocs", r#"{"url": "a"}"#, "string"),
    ("x-order", "3", "string"),
];

#[test]
fn keywords_without_effect_are_dropped() {
    for (keyword, value, kind) in WITHOUT_EFFECT {
        let value: Value = serde_json::from_str(value).unwrap();
        let schema = json!({ "type": kind, keyword: value });
        let text = match keyword {
            "allOf" => json!({ "type": kind, "allOf": [{}] }),
            _ => json!({ "type": kind }),
        };
        assert_eq!(simple(&schema), text, "{schema}");
        let within = json!({ "properties": { "a": schema } });
        assert_eq!(simple(&within)["properties"]["a"], text, "{within}");
    }
}

#[test]
fn each_keyword_has_an_effect_a_rewritten_form_or_none() {
    for keyword in KEYWORDS {
        let covered = WITHOUT_EFFECT
            .iter()
            .any(|(name, ..)| *name == keyword.name);
        match keyword.role {
            Role::Annotation => {
                let schema = json!({ keyword.name: 3 });
                assert_eq!(simple(&schema), json!({}), "{}", keyword.name);
            }
            // The value has the wrong type.
            Role::Enforced(keywords::Form::Any) => {}
            Role::Enforced(_) | Role::Rewritten => {
                let schema =
                    json!({ "properties": { "a/b": { keyword.name: { "minLength": 3.5 } } } });
                let name = keyword.name;
                match simplify(&schema, Unsupported::Refuse) {
                    Ok(_) => assert!(covered, "{name}"),
                    Err(error) => {
                        let place = format!("/properties/a~1b/{name}");
                        assert!(error.pointer.starts_with(&place), "{name}: {error}");
                        assert!(error.to_string().contains(&error.pointer), "{error}");
                    }
                }
            }
        }
    }
}

#[test]
fn unsupported_keywords_are_named_with_their_place() {
    for (schema, pointer) in [
        (json!({ "uniqueItems": true }), "/uniqueItems"),
        (json!({ "not": { "type": "string" } }), "/not"),
        (json!({ "contains": { "type": "string" } }), "/contains"),
        (
            json!({ "if": { "type": "string" }, "then": { "minLength": 2 } }),
            "/if",
        ),
        (
            json!({ "dependentRequired": { "a": ["b"] } }),
            "/dependentRequired",
        ),
        (json!({ "dependencies": { "a": ["b"] } }), "/dependencies"),
        (
            json!({ "dependentSchemas": { "a": { "required": ["b"] } } }),
            "/dependentSchemas",
        ),
        (
            json!({ "allOf": [{ "type": "object" }], "unevaluatedProperties": false }),
            "/unevaluatedProperties",
        ),
        (
            json!({ "propertyNames": { "format": "email" } }),
            "/propertyNames",
        ),
        (
            json!({ "oneOf": [{ "type": "number" }, { "type": "integer" }] }),
            "/oneOf",
        ),
        (json!({ "minimum": 1e20 }), "/minimum"),
        (json!({ "exclusiveMaximum": 1e-320 }), "/exclusiveMaximum"),
        (json!({ "multipleOf": 1e20 }), "/multipleOf"),
        (json!({ "pattern": "^(?!a)" }), "/pattern"),
        (json!({ "pattern": r"\bword\b" }), "/pattern"),
        (
            json!({ "patternProperties": { "a(?=b)": {} } }),
            "/patternProperties",
        ),
        (
            json!({ "minProperties": 2, "properties": { "a": {}, "b": {} } }),
            "/minProperties",
        ),
        (
            json!({ "maxProperties": 1, "properties": { "a": {}, "b": {} } }),
            "/maxProperties",
        ),
    ] {
        let inner = json!({ "properties": { "a": { "items": schema } } });
        for (schema, at) in [(&schema, ""), (&inner, "/properties/a/items")] {
            let keyword = pointer.trim_start_matches('/');
            let error = refused(schema);
            let start = format!("`{keyword}` at {at}{pointer} is ");
            assert!(
                error.starts_with(&start) && error.contains("supported"),
                "{error}"
            );
            let loose = simplify(schema, Unsupported::Loosen).unwrap();
            assert_eq!(loose.loosened[0].pointer, format!("{at}{pointer}"));
            assert_eq!(loose.loosened.len(), 1);
            simplify(&loose.schema, Unsupported::Refuse).unwrap();
        }
    }
}

#[test]
fn mistakes_are_named_with_their_place() {
    for (schema, expected) in [
        (
            json!({ "type": "strnig" }),
            "`type` at /type must be null, boolean, ",
        ),
        (
            json!({ "type": [] }),
            "`type` at /type must be null, boolean, ",
        ),
        (
            json!({ "properties": { "a": { "required": true } } }),
            "`required` at /properties/a/required must be a list of names, and is true",
        ),
        (
            json!({ "properties": { "a": 3 } }),
            "`properties` at /properties/a must be a schema (an object, true or false), and is 3",
        ),
        (
            json!({ "items": "string" }),
            "`items` at /items must be a schema (an object, true or false), and is \"string\"",
        ),
        (
            json!({ "minLength": -1 }),
            "`minLength` at /minLength must be a whole number, 0 or more, and is -1",
        ),
        (
            json!({ "multipleOf": 0 }),
            "`multipleOf` at /multipleOf must be a number above 0",
        ),
        (
            json!({ "enum": [] }),
            "`enum` at /enum must be a list of values that is not empty",
        ),
        (
            json!({ "anyOf": [] }),
            "`anyOf` at /anyOf must be a list of schemas that is not empty",
        ),
        (
            json!({ "$ref": "#/$defs/a" }),
            "`$ref` at /$ref refers to nothing in the schema: \"#/$defs/a\"",
        ),
        (
            json!({ "$ref": "https://example.com/a" }),
            "`$ref` at /$ref must refer to a place within the schema (#/…), and is \"https://example.com/a\"",
        ),
        (
            json!([]),
            "must be a schema (an object, true or false), and is []",
        ),
    ] {
        for unsupported in [Unsupported::Refuse, Unsupported::Loosen] {
            let error = simplify(&schema, unsupported).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}

#[test]
fn loosened_schemas_keep_their_other_keywords() {
    let schema = json!({
        "type": "object",
        "properties": {
            "tags": { "type": "array", "items": { "type": "string", "maxLength": 3 }, "uniqueItems": true },
            "size": { "oneOf": [{ "type": "number" }, { "type": "integer" }] },
        },
        "required": ["tags"],
        "additionalProperties": false,
    });
    let loose = simplify(&schema, Unsupported::Loosen).unwrap();
    let issues: Vec<String> = loose.loosened.iter().map(ToString::to_string).collect();
    assert_eq!(
        issues[0],
        "`uniqueItems` at /properties/tags/uniqueItems is not supported"
    );
    assert!(issues[1].starts_with("`oneOf` at /properties/size/oneOf is only supported if "));
    assert_matches(
        loose.schema,
        &[r#"{"tags": ["a", "a"]}"#, r#"{"tags": [], "size": 3}"#],
        &[
            r#"{"tags": ["long"]}"#,
            r#"{"size": 3}"#,
            r#"{"tags": [], "more": 1}"#,
        ],
    );
    // Without the pattern its properties are additional ones, which must not be forbidden instead.
    let schema = json!({ "type": "object", "patternProperties": { "^(?!x)": { "type": "integer" } }, "additionalProperties": false });
    let loose = simplify(&schema, Unsupported::Loosen).unwrap().schema;
    assert_matches(loose, &[r#"{"a": 1}"#], &["1"]);
}

/// JSON Schema does not distinguish 5 and 5.0.
#[test]
fn whole_floats_are_integers() {
    assert_matches(json!({ "const": 5.0 }), &["5"], &["4", "5.5"]);
    let values = json!({ "enum": [5.0, 2.5, [1.0]] });
    assert_matches(values, &["5", "2.5", "[1]"], &["2", "[2]"]);
    let bounds = json!({ "type": "integer", "minimum": 2.0, "maximum": 5.0, "multipleOf": 2.0 });
    assert_matches(bounds, &["2", "4"], &["1", "3", "6"]);
}
