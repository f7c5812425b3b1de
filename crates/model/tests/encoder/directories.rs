//! Export, and directories that are refused.

use std::collections::BTreeMap;
use std::fs;

use emberlm_model::encoder::EncoderSettings;
use emberlm_model::hugging_face::ExportOptions;
use emberlm_model::hugging_face::HuggingFaceModel;
use emberlm_model::hugging_face::export;
use emberlm_model::weights::load_tensors;
use emberlm_model::{ConfigError, HuggingFaceError, TransformerConfig};
use serde_json::Value;

use super::{MODELS, folder, open};
use crate::set_fields;
use crate::tables::check_table;

type B = burn_flex::Flex;

#[test]
fn exported_directories_hold_the_same_tensors_and_fields() {
    for name in MODELS {
        let (directory, _) = open(name);
        let encoder = directory.decoder::<B>(&Default::default()).unwrap();
        let out = tempfile::tempdir().unwrap();
        let options = ExportOptions::default();
        export(&encoder, out.path(), &options).unwrap();
        let again = HuggingFaceModel::open(out.path()).unwrap();
        assert_eq!(again.config(), directory.config(), "{name}");
        if name == "bert-early" {
            continue;
        }
        let tensors = |folder: &std::path::Path| -> BTreeMap<_, _> {
            let file = folder.join("model.safetensors");
            load_tensors(&file).unwrap().into_iter().collect()
        };
        assert_eq!(tensors(out.path()), tensors(&folder(name)), "{name}");
    }
}

#[test]
fn parameters_are_counted_as_the_files_store_them() {
    for name in MODELS.into_iter().filter(|&name| name != "bert-early") {
        let (directory, _) = open(name);
        let file = folder(name).join("model.safetensors");
        let tensors = load_tensors(&file).unwrap();
        let elements: usize = tensors.iter().map(|(_, tensor)| tensor.values.len()).sum();
        assert_eq!(directory.config().parameters(), elements as u128, "{name}");
    }
}

/// A copy of a fixture with other fields in its `config.json`.
pub fn changed(
    name: &str,
    change: impl FnOnce(&mut Value),
) -> Result<HuggingFaceModel, HuggingFaceError> {
    let copy = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(folder(name).join(file), copy.path().join(file)).unwrap();
    }
    let file = copy.path().join("config.json");
    let mut fields: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    change(&mut fields);
    fs::write(&file, fields.to_string()).unwrap();
    HuggingFaceModel::open(copy.path())
}

#[test]
fn changed_directories_are_refused() {
    check_table("encoder/refused", |row| {
        let (name, changes) = row.split_once(' ').unwrap();
        match changed(name, |fields| set_fields(fields, changes)) {
            Err(error) => error.to_string(),
            Ok(model) => match model.decoder::<B>(&Default::default()) {
                Err(error) => format!("weights: {error}"),
                Ok(_) => "read".to_owned(),
            },
        }
    });
}

#[test]
fn truncated_weights_are_refused_at_every_length() {
    let copy = tempfile::tempdir().unwrap();
    fs::copy(
        folder("bert-bare").join("config.json"),
        copy.path().join("config.json"),
    )
    .unwrap();
    let whole = fs::read(folder("bert-bare").join("model.safetensors")).unwrap();
    for length in (0..whole.len()).step_by(997) {
        fs::write(copy.path().join("model.safetensors"), &whole[..length]).unwrap();
        let model = HuggingFaceModel::open(copy.path());
        let read = model.and_then(|model| model.decoder::<B>(&Default::default()));
        assert!(read.is_err(), "{length} bytes");
    }
}

#[test]
fn settings_that_break_a_rule_are_refused() {
    let (directory, _) = open("bert-sequence");
    let refuse = |change: fn(&mut EncoderSettings), field: &str| {
        let mut settings = EncoderSettings::of(directory.config()).unwrap();
        change(&mut settings);
        let error: ConfigError = TransformerConfig::try_from(settings).unwrap_err();
        assert_eq!(error.field, field);
    };
    refuse(|settings| settings.heads = 7, "heads");
    refuse(|settings| settings.first_position = 32, "first_position");
    refuse(|settings| settings.dropout = 1.0, "dropout");
    refuse(|settings| settings.n_layers = 0, "n_layers");
}
