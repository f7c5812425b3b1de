//! Invalid numbers in `config.json` cause an error that names the field.

use emberlm_model::HuggingFaceError;
use serde_json::{Value, json};

use super::changed;
use crate::tables::check_table;

fn named(name: &str, field: &str, value: &Value) {
    match changed(name, json!({ field: value })) {
        Err(HuggingFaceError::Field {
            field: found,
            value: given,
            ..
        }) => assert_eq!(
            (found, given),
            (field.to_owned(), value.to_string()),
            "{name}"
        ),
        other => panic!("{name}: {field} = {value}: {other:?}"),
    }
}

/// A row has a kind of fields, a fixture and fields of this kind.
#[test]
fn wrong_values_of_sizes_numbers_and_flags() {
    let wrong = json!({
        "sizes": [0, -1, 1.5, 8.0, 16_777_217, 1_u64 << 60, u64::MAX, 1e300, "12", true, [12], {"is": 12}],
        "numbers": ["1", true, [1], {}],
        "flags": [1, 0, "true", [true], {}],
    });
    check_table("hugging_face/numbers", |row| {
        let (kind, row) = row.split_once(' ').unwrap();
        let (name, fields) = row.split_once(' ').unwrap();
        for field in fields.split(' ') {
            for value in wrong[kind].as_array().unwrap() {
                named(name, field, value);
            }
            let out_of_range = [0, -1].iter().filter(|_| kind == "numbers");
            for value in out_of_range {
                let error = changed(name, json!({ field: value })).unwrap_err();
                let error = error.to_string();
                assert!(error.contains(&value.to_string()), "{row}: {error}");
            }
        }
        "named".to_owned()
    });
}
