//! Unsupported features and damaged weights are rejected with the field or the tensor, its value and the rule.

use std::collections::BTreeMap;
use std::fs;

use emberlm_model::HuggingFaceError;
use emberlm_model::hugging_face::HuggingFaceModel;
use serde_json::Value;

use super::quantized::tiny_int8;
use super::{Copied, Stored, fields_of, fixture};
use crate::set_fields;
use crate::tables::check_table;

/// A row is a fixture with changed fields, or with operations on tensors: `remove NAME`, `shape NAME SHAPE`,
/// `dtype NAME TYPE`, `copy NAME OTHER_NAME`, or `bytes NAME [OFFSET, BYTE…]`.
#[test]
fn changed_directories_are_refused() {
    check_table("hugging_face/refused", |row| {
        let (name, changes) = row.split_once(' ').unwrap();
        let copied = match name {
            "tiny-int8" => tiny_int8(),
            name => Copied::of(name),
        };
        match changes.starts_with('{') {
            true => copied.edit("config.json", |fields| set_fields(fields, changes)),
            false => copied.rewrite(|tensors| change_tensors(tensors, changes)),
        };
        copied.error()
    });
}

fn change_tensors(tensors: &mut BTreeMap<String, Stored>, operations: &str) {
    let mut words = operations.split(' ');
    while let Some(operation) = words.next() {
        let name = words.next().unwrap();
        let tensor = tensors.get_mut(name).unwrap();
        let value = match operation {
            "remove" => Value::Null,
            _ => serde_json::from_str(words.next().unwrap()).unwrap(),
        };
        match operation {
            "remove" => drop(tensors.remove(name)),
            "shape" => tensor.shape = serde_json::from_value(value).unwrap(),
            "dtype" => {
                tensor.dtype = serde_json::from_value(value).unwrap();
                let elements: usize = tensor.shape.iter().product();
                tensor.bytes.truncate(elements * tensor.dtype.bitsize() / 8);
            }
            "bytes" => {
                let numbers: Vec<u8> = serde_json::from_value(value).unwrap();
                let at = usize::from(numbers[0]);
                tensor.bytes[at..][..numbers.len() - 1].copy_from_slice(&numbers[1..]);
            }
            "copy" => {
                let copy = tensor.clone();
                tensors.insert(value.as_str().unwrap().to_owned(), copy);
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn type_must_be_given() {
    let mut fields = fields_of(&fixture("llama-gqa"));
    fields.remove("model_type");
    let error = emberlm_model::hugging_face::read_config(&fields).unwrap_err();
    let expected = "config.json: `model_type` = missing: must be given";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn invalid_configuration_file() {
    let copied = Copied::of("llama-gqa");
    for text in [
        "",
        "{",
        "[]",
        "null",
        "{\"vocab_size\": 1e999}",
        "\u{feff}{}",
    ] {
        copied.write("config.json", text);
        let error = copied.error();
        let start = "DIR/config.json is not a JSON object: ";
        assert!(error.starts_with(start), "{text}: {error}");
    }
    copied.write("config.json", "{\"a\":".repeat(100_000));
    assert!(
        copied
            .error()
            .starts_with("DIR/config.json is not a JSON object: ")
    );
    copied.write("config.json", [0xff, 0xfe]);
    assert!(copied.error().starts_with("DIR/config.json: "));
    fs::remove_file(copied.path("config.json")).unwrap();
    assert!(copied.error().starts_with("DIR/config.json: "));
    let nowhere = HuggingFaceModel::open(&copied.path("no/such"));
    assert!(matches!(nowhere, Err(HuggingFaceError::Io { .. })));
}
