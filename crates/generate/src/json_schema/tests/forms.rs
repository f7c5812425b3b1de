//! Forms of older drafts, of OpenAPI, of references and of alternatives.

use serde_json::{Value, json};

use super::{assert_matches, refused, simple};

#[test]
fn null_is_a_value_of_const_and_enum() {
    assert_matches(json!({ "const": null }), &["null"], &["1"]);
    assert_matches(json!({ "enum": [null, "a"] }), &["null", r#""a""#], &["1"]);
    assert_matches(
        json!({ "type": "string", "default": null, "maxLength": null, "pattern": null }),
        &[r#""a""#],
        &["null"],
    );
}

#[test]
fn older_drafts_are_rewritten() {
    for bound in [
        json!({ "minimum": 3, "exclusiveMinimum": true }),
        json!({ "exclusiveMinimum": 3 }),
    ] {
        let mut schema = json!({ "type": "integer" });
        schema
            .as_object_mut()
            .unwrap()
            .extend(bound.as_object().unwrap().clone());
        assert_matches(schema, &["4"], &["3"]);
    }
    for draft in ["draft-04", "draft-06", "draft-07"] {
        let schema = json!({
            "$schema": format!("http://json-schema.org/{draft}/schema#"),
            "type": "array",
            "items": [{ "type": "integer" }, { "type": "string" }],
            "additionalItems": false,
        });
        assert_matches(
            schema,
            &["[1, \"a\"]", "[1]", "[]"],
            &["[\"a\"]", "[1, \"a\", 1]"],
        );
        let schema = json!({
            "$schema": format!("http://json-schema.org/{draft}/schema#"),
            "const": 1, "propertyNames": { "enum": ["a"] },
        });
        assert_matches(schema, &["1"], &["2"]);
    }
}

#[test]
fn open_api_keywords_have_their_effect() {
    let text = json!({ "type": "string", "nullable": true, "maxLength": 2, "example": "a" });
    assert_matches(text, &["null", r#""ab""#], &[r#""abc""#, "1"]);
    let choice = json!({ "enum": ["a", "b"], "nullable": true });
    assert_matches(choice, &["null", r#""a""#], &["1"]);
    let reference = json!({
        "type": "object",
        "properties": { "pet": { "nullable": true, "allOf": [{ "$ref": "#/components/schemas/Pet" }] } },
        "required": ["pet"],
        "components": { "schemas": { "Pet": {
            "discriminator": { "propertyName": "kind" },
            "oneOf": [{ "$ref": "#/components/schemas/Cat" }, { "$ref": "#/components/schemas/Dog" }],
        }, "Cat": { "type": "object", "properties": { "kind": { "const": "cat" } }, "required": ["kind"], "additionalProperties": false },
           "Dog": { "type": "object", "properties": { "kind": { "const": "dog" } }, "required": ["kind"], "additionalProperties": false } } },
    });
    assert_matches(
        reference,
        &[r#"{"pet": null}"#, r#"{"pet": {"kind": "dog"}}"#],
        &[r#"{"pet": {"kind": "cow"}}"#, "{}"],
    );
}

#[test]
fn alternatives_that_exclude_each_other_are_supported() {
    let kind =
        |name: &str| json!({ "properties": { "kind": { "const": name } }, "required": ["kind"] });
    for schema in [
        json!({ "oneOf": [{ "type": "string" }, { "type": ["integer", "null"] }] }),
        json!({ "oneOf": [{ "const": 1 }, { "const": 2 }, { "enum": ["a", 3] }] }),
        json!({ "type": "object", "oneOf": [kind("a"), kind("b")] }),
        json!({ "allOf": [{ "type": "object" }], "oneOf": [{ "allOf": [{ "type": "object" }, kind("a")] }, { "type": "string" }] }),
        json!({ "type": "object", "allOf": [{ "oneOf": [kind("a"), kind("b")] }] }),
        json!({ "oneOf": [{ "type": "object", "properties": { "a": {} }, "required": ["a"], "additionalProperties": false },
                          { "type": "object", "properties": { "b": {} }, "required": ["b"], "additionalProperties": false }] }),
        json!({ "oneOf": [{ "anyOf": [{ "type": "null" }, { "const": "a" }] }, { "const": "b" }] }),
        json!({ "oneOf": [{ "type": "string" }] }),
    ] {
        let simple = simple(&schema).to_string();
        assert!(
            !simple.contains("oneOf") && simple.contains("anyOf"),
            "{simple}"
        );
    }
    for schema in [
        json!({ "oneOf": [kind("a"), kind("b")] }),
        json!({ "oneOf": [{ "type": "object", "required": ["a"] }, { "type": "object", "required": ["b"] }] }),
        json!({ "oneOf": [{ "const": 1 }, { "const": 1.0 }] }),
        json!({ "oneOf": [{}, { "type": "null" }] }),
        json!({ "oneOf": [{ "type": "string", "nullable": true }, { "type": "null" }] }),
        json!({ "oneOf": [{ "$ref": "#" }, { "$ref": "#" }] }),
    ] {
        assert!(
            refused(&schema).starts_with("`oneOf` at /oneOf"),
            "{schema}"
        );
    }
}

#[test]
fn names_of_properties_are_restricted() {
    let schema = json!({
        "type": "object",
        "propertyNames": { "$ref": "#/$defs/Colour" },
        "additionalProperties": { "type": "integer" },
        "required": ["red"],
        "$defs": { "Colour": { "enum": ["red", "blue"], "type": "string", "title": "Colour" } },
    });
    assert_matches(
        schema,
        &[r#"{"red": 1}"#, r#"{"red": 1, "blue": 2}"#],
        &[r#"{"green": 1}"#, r#"{"red": "a"}"#, r#"{"blue": 2}"#],
    );
    let schema = json!({ "type": "object", "propertyNames": { "pattern": "^a+$" }, "additionalProperties": { "type": "integer" } });
    assert_matches(
        schema,
        &[r#"{"aa": 1}"#, "{}"],
        &[r#"{"b": 1}"#, r#"{"a": "a"}"#],
    );
    let schema = json!({ "type": "object", "propertyNames": { "minLength": 2 }, "additionalProperties": { "type": "integer" } });
    assert_matches(schema, &[r#"{"ab": 1}"#], &[r#"{"a": 1}"#]);
}

#[test]
fn other_keywords_are_rewritten_exactly() {
    assert_matches(
        json!({ "type": "array", "contains": {}, "maxContains": 2 }),
        &["[1]", "[1, 2]"],
        &["[]", "[1, 2, 3]"],
    );
    let schema =
        json!({ "type": "object", "properties": { "a": {} }, "unevaluatedProperties": false });
    assert_matches(schema, &[r#"{"a": 1}"#, "{}"], &[r#"{"b": 1}"#]);
    assert_matches(
        json!({ "prefixItems": [{}], "type": "array", "unevaluatedItems": false }),
        &["[1]"],
        &["[1, 2]"],
    );
    assert_matches(
        json!({ "if": true, "then": { "type": "null" }, "else": { "type": "string" } }),
        &["null"],
        &["1"],
    );
    assert_matches(
        json!({ "if": false, "then": { "type": "null" }, "else": { "type": "string" } }),
        &["\"a\""],
        &["null"],
    );
    let schema = json!({ "type": "object", "properties": { "a": { "not": {} }, "b": { "const": 1 } }, "required": ["b"], "additionalProperties": false });
    assert_matches(schema, &[r#"{"b": 1}"#], &[r#"{"a": 1, "b": 1}"#]);
    let schema = json!({ "type": "object", "properties": { "a": { "const": 1 }, "b": { "const": 1 } }, "minProperties": 1, "additionalProperties": false });
    assert_matches(schema, &[r#"{"a": 1}"#, r#"{"b": 1}"#], &["{}"]);
}

#[test]
fn references_are_resolved_within_the_schema() {
    let of = |reference: &str| {
        json!({
            "$id": "https://example.com/root",
            "type": "object",
            "properties": { "a": { "$ref": reference, "description": "d" } },
            "required": ["a"],
            "additionalProperties": false,
            "$defs": { "x/y z": { "$anchor": "here", "const": 1 } },
        })
    };
    for reference in [
        "#/$defs/x~1y z",
        "#/$defs/x~1y%20z",
        "#here",
        "https://example.com/root#/$defs/x~1y%20z",
    ] {
        assert_matches(of(reference), &[r#"{"a": 1}"#], &[r#"{"a": 2}"#]);
    }
    for reference in ["#", "#/", "https://example.com/root"] {
        let schema = json!({ "$id": "https://example.com/root", "type": "array", "items": { "$ref": reference } });
        assert_matches(schema, &["[]", "[[], [[]]]"], &["[1]"]);
    }
    let schema =
        json!({ "$recursiveAnchor": true, "type": "array", "items": { "$recursiveRef": "#" } });
    assert_matches(schema, &["[[]]"], &["[1]"]);
    let schema =
        json!({ "$dynamicAnchor": "node", "type": "array", "items": { "$dynamicRef": "#node" } });
    assert_matches(schema, &["[[]]"], &["[1]"]);
}

#[test]
fn the_work_is_bounded() {
    // Each reference has another target, and the targets are within each other.
    let mut schema = json!({ "enum": vec![1; 2000] });
    for depth in 0..100 {
        schema = json!({ "properties": { "a": schema, "b": { "$ref": format!("#{}", "/properties/a".repeat(depth)) } } });
    }
    let error = refused(&schema);
    assert!(
        error.contains("must have at most 50000 values with all references"),
        "{error}"
    );
    let many: Vec<Value> = (0..2000)
        .map(|i| json!({ "properties": { "k": { "const": i } }, "required": ["k"] }))
        .collect();
    let error = refused(&json!({ "oneOf": many }));
    assert!(error.starts_with("`oneOf` at /oneOf"), "{error}");
}

#[test]
fn bounds_of_number_types_are_supported() {
    for (kind, least, most) in [
        ("integer", json!(i64::MIN), json!(i64::MAX)),
        ("integer", json!(0), json!(u64::MAX)),
        ("number", json!(f64::MIN), json!(f64::MAX)),
        ("number", json!(f32::MIN), json!(f32::MAX)),
    ] {
        for [lower, upper] in [
            ["minimum", "maximum"],
            ["exclusiveMinimum", "exclusiveMaximum"],
        ] {
            let schema = json!({ "type": kind, lower: least, upper: most });
            assert_matches(schema, &["1", "123456789012345678"], &["1e400", "null"]);
        }
    }
}

#[test]
fn patterns_keep_their_flags_and_anchors() {
    for (pattern, matching, other) in [
        ("(?i)^abc$", r#""aBc""#, r#""abcd""#),
        ("^(?:a|b)$", r#""a""#, r#""ab""#),
        ("^a$|^b$", r#""b""#, r#""ab""#),
        ("a|^b", r#""xa""#, r#""xb""#),
        (r"^\/[\w.-]+$", r#""/a.b-c""#, r#""a""#),
    ] {
        let schema = json!({ "type": "string", "pattern": pattern });
        assert_matches(schema, &[matching], &[other]);
    }
}
