//! Adapters of PEFT whose settings are not supported, or disagree with their tensors, are rejected by name.

use std::fs;
use std::path::{Path, PathBuf};

use burn_flex::Flex;
use emberlm_model::AdapterError;
use emberlm_model::adapter::{ADAPTER_CONFIG_FILE, ADAPTER_WEIGHTS_FILE, PeftAdapter};
use emberlm_model::hugging_face::HuggingFaceModel;
use safetensors::SafeTensors;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::set_fields;
use crate::tables::check_table;

fn fixture(name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/adapters");
    fixtures.join(name)
}

/// A copy of an adapter, with other values of some fields.
fn changed(name: &str, changes: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let read = fs::read(fixture(name).join(ADAPTER_CONFIG_FILE)).unwrap();
    let mut fields: Value = serde_json::from_slice(&read).unwrap();
    set_fields(&mut fields, changes);
    fs::write(folder.path().join(ADAPTER_CONFIG_FILE), fields.to_string()).unwrap();
    let weights = fixture(name).join(ADAPTER_WEIGHTS_FILE);
    fs::copy(weights, folder.path().join(ADAPTER_WEIGHTS_FILE)).unwrap();
    folder
}

/// Adds an adapter to the base model of a fixture.
fn added(name: &str, folder: &Path) -> Result<(), AdapterError> {
    let base = HuggingFaceModel::open(&fixture(name).join("base")).unwrap();
    let decoder = base.decoder::<Flex>(&Default::default()).unwrap();
    let adapter = PeftAdapter::open(folder)?;
    adapter.add_to(decoder).map(|_| ())
}

fn assert_read(name: &str, changes: &str) {
    let folder = changed(name, changes);
    if let Err(error) = added(name, folder.path()) {
        panic!("{changes}: {error}");
    }
}

#[test]
fn settings_are_refused_by_name() {
    check_table("adapter_files", |row| {
        let (name, changes) = row.split_once(' ').unwrap();
        let folder = changed(name, changes);
        match added(name, folder.path()) {
            Ok(()) => "read".to_owned(),
            Err(error) => error.to_string(),
        }
    });
}

#[test]
fn every_field_may_be_missing() {
    let read = fs::read(fixture("llama-lora").join(ADAPTER_CONFIG_FILE)).unwrap();
    let fields: Value = serde_json::from_slice(&read).unwrap();
    for field in fields.as_object().unwrap().keys() {
        // Their defaults are other values than those of the file.
        if !["r", "lora_alpha"].contains(&field.as_str()) {
            assert_read("llama-lora", &json!({ field: null }).to_string());
        }
    }
}

/// A copy of an adapter whose tensors have the names that `rename` returns; `None` leaves a tensor out.
fn renamed(rename: impl Fn(&str) -> Option<String>) -> TempDir {
    let folder = changed("llama-lora", r#"{"target_modules": null}"#);
    let file = folder.path().join(ADAPTER_WEIGHTS_FILE);
    let bytes = fs::read(&file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensors = tensors
        .iter()
        .filter_map(|(name, view)| Some((rename(name)?, view)));
    safetensors::serialize_to_file(tensors, None, &file).unwrap();
    folder
}

#[test]
fn tensors_of_other_parts_of_the_model_are_named() {
    let own = "base_model.model.model.layers.0.self_attn.q_proj.lora_";
    check_table("adapter_tensors", |row| {
        let (a, b) = row
            .split_once(' ')
            .map_or((row, None), |(a, b)| (a, Some(b)));
        let folder = renamed(|name| match name.strip_prefix(own) {
            None => Some(name.to_owned()),
            Some("A.weight") => Some(format!("base_model.model.{a}")),
            Some(_) => b.map(|b| format!("base_model.model.{b}")),
        });
        let error = added("llama-lora", folder.path()).unwrap_err();
        error.to_string()
    });
}
