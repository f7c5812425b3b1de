//! Schemas as Pydantic, Zod and OpenAPI generators write them (`fixtures/make_schemas.py`), with instances that a validator
//! of JSON Schema accepts and rejects.

use emberlm_generate::json_schema::{Unsupported, simplify};
use emberlm_generate::{Constraint, Grammar};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Schema {
    name: String,
    schema: Value,
    /// The pointers of keywords that are not supported.
    unsupported: Vec<String>,
    valid: Vec<String>,
    invalid: Vec<String>,
}

#[test]
fn schemas_of_generators_match_what_a_validator_accepts() {
    let schemas = include_str!("fixtures/schemas.json");
    let schemas: Vec<Schema> = serde_json::from_str(schemas).unwrap();
    assert_eq!(schemas.len(), 18);
    for Schema {
        name,
        schema,
        unsupported,
        valid,
        invalid,
    } in schemas
    {
        let simple = simplify(&schema, Unsupported::Loosen).unwrap();
        let loosened = simple.loosened.iter();
        let loosened: Vec<&str> = loosened.map(|issue| issue.pointer.as_str()).collect();
        assert_eq!(loosened, unsupported, "{name}");
        let given = Grammar::JsonSchema(schema.to_string());
        let refused = Constraint::of_bytes(given).err();
        assert_eq!(
            refused.is_some(),
            !unsupported.is_empty(),
            "{name}: {refused:?}"
        );
        if let Some(error) = refused {
            assert!(error.rule.contains(&unsupported[0]), "{error}");
        }
        let loose = Grammar::JsonSchema(simple.schema.to_string());
        let constraint = Constraint::of_bytes(loose).unwrap();
        for text in valid {
            assert!(constraint.allows(&text), "{name} allows {text}");
        }
        for text in invalid {
            assert!(!constraint.allows(&text), "{name} does not allow {text}");
        }
    }
}
