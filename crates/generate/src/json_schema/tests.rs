use serde_json::{Value, json};

use super::*;
use crate::{Constraint, Grammar};

#[path = "../../../../tests/tables.rs"]
mod tables;

use tables::check_table;

/// A keyword whose value restricts nothing, for every keyword that has such a value.
const WITHOUT_EFFECT: &str = include_str!("../../tests/json_schema/without_effect.txt");

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

fn parsed(row: &str) -> Value {
    serde_json::from_str(row).unwrap()
}

#[test]
fn schemas_allow_exactly_the_texts_that_match() {
    check_table("json_schema/matches", |row| {
        let mut texts = row.split(" ~ ");
        let schema = Grammar::JsonSchema(texts.next().unwrap().to_owned());
        let constraint = Constraint::of_bytes(schema).unwrap();
        let answers = texts.map(|text| ["no", "yes"][usize::from(constraint.allows(text))]);
        answers.collect::<Vec<_>>().join(" ")
    });
}

#[test]
fn alternatives_that_exclude_each_other_are_supported() {
    check_table("json_schema/alternatives", |row| {
        let simple = match simplify(&parsed(row), Unsupported::Refuse) {
            Ok(simple) => simple.schema.to_string(),
            Err(error) => return error.to_string(),
        };
        let found = ["oneOf", "anyOf"].into_iter();
        let found = found.filter(|name| simple.contains(name));
        found.collect::<Vec<_>>().join(" ")
    });
}

#[test]
fn keywords_without_effect_are_dropped() {
    check_table("json_schema/without_effect", |row| {
        let found = simple(&parsed(row));
        let within = simple(&json!({ "properties": { "a": parsed(row) } }));
        assert_eq!(within["properties"]["a"], found, "{row}");
        found.to_string()
    });
}

#[test]
fn unsupported_keywords_are_named_with_their_place() {
    check_table("json_schema/unsupported", |row| {
        let schema = parsed(row);
        let [error, within] = [
            (schema.clone(), ""),
            (
                json!({ "properties": { "a": { "items": schema } } }),
                "/properties/a/items",
            ),
        ]
        .map(|(schema, place)| {
            let error = simplify(&schema, Unsupported::Refuse).unwrap_err();
            let loose = simplify(&schema, Unsupported::Loosen).unwrap();
            assert_eq!(loose.loosened.len(), 1);
            assert_eq!(loose.loosened[0].pointer, error.pointer);
            simplify(&loose.schema, Unsupported::Refuse).unwrap();
            assert!(error.pointer.starts_with(place), "{row}: {error}");
            error
                .to_string()
                .replacen(&format!(" at {place}/"), " at /", 1)
        });
        assert_eq!(within, error, "{row}");
        error
    });
}

#[test]
fn mistakes_are_named_with_their_place() {
    check_table("json_schema/mistakes", |row| {
        let [error, loose] = [Unsupported::Refuse, Unsupported::Loosen]
            .map(|unsupported| simplify(&parsed(row), unsupported).unwrap_err().to_string());
        assert_eq!(loose, error);
        error
    });
}

#[test]
fn each_keyword_has_an_effect_a_rewritten_form_or_none() {
    for keyword in KEYWORDS {
        let row = format!("$ {{\"{}\": ", keyword.name);
        let covered = WITHOUT_EFFECT.contains(&row);
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
