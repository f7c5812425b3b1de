//! Text models of directories that also have a part for images, compared with `transformers`.
//! `fixtures/make_text_parts.py` writes the directories.

use std::fs;
use std::path::PathBuf;

use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::Flex;
use emberlm_model::hugging_face::{ExportOptions, HuggingFaceModel, export, kind_of, read_config};
use serde_json::{Value, json};
use tempfile::tempdir;

use super::fields_of;
use crate::parity::checks::{host, relative, slack, within};
use crate::parity::fixture::Fixture;

const TYPES: [(&str, &str); 4] = [
    ("gemma3", "gemma3_text"),
    ("llava", "llama"),
    ("mistral3", "mistral"),
    ("qwen3_5", "qwen3_5_text"),
];

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/text_parts");
    folder.join(name)
}

/// The logits of a directory's model for the tokens of a fixture.
fn logits(model: &HuggingFaceModel, fixture: &Fixture) -> Vec<f32> {
    let decoder = model.decoder::<Flex>(&Default::default()).unwrap();
    let (ids, shape) = fixture.ids("input");
    let ids: Vec<i32> = ids.iter().map(|&id| id as i32).collect();
    let ids = TensorData::new(ids, shape);
    let ids = Tensor::<Flex, 2, Int>::from_data(ids, &Default::default());
    host(decoder.forward(ids))
}

#[test]
fn the_text_model_computes_the_logits_of_the_whole() {
    for (name, text) in TYPES {
        let fixture = Fixture::read(folder(name).join("expected.safetensors"));
        let model = HuggingFaceModel::open(&folder(name)).unwrap();
        assert_eq!(model.fields()["model_type"], text);
        let warning = format!(
            "config.json: `model_type` = \"{name}\": only the text model of this model for images and text is read"
        );
        assert_eq!(model.warnings(), [warning]);
        assert!(kind_of(&fields_of(&folder(name))).is_some());
        let expected = fixture.floats("logits");
        let bound = 3e-6 * slack(model.config());
        let found = logits(&model, &fixture);
        within(name, relative(&found, &expected), bound);

        // The export is a directory of only the text model.
        let place = tempdir().unwrap();
        let decoder = model.decoder::<Flex>(&Default::default()).unwrap();
        export(&decoder, place.path(), &ExportOptions::default()).unwrap();
        let exported = HuggingFaceModel::open(place.path()).unwrap();
        assert!(exported.warnings().is_empty(), "{:?}", exported.warnings());
        assert!(found == logits(&exported, &fixture), "{name}");
    }
}

#[test]
fn other_text_models_and_damaged_fields_are_refused() {
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut fields = Value::Object(fields_of(&folder("mistral3")));
        change(&mut fields);
        read_config(fields.as_object().unwrap())
            .unwrap_err()
            .to_string()
    };
    let other = changed(&|fields| fields["text_config"]["model_type"] = json!("gpt2"));
    assert_eq!(
        other,
        "config.json: `text_config.model_type` = \"gpt2\": must be one of mistral"
    );
    let none = changed(&|fields| fields["text_config"] = Value::Null);
    assert_eq!(none, "config.json: `text_config` = null: must be an object");
    let heads = changed(&|fields| fields["text_config"]["num_attention_heads"] = json!(0));
    assert!(heads.contains("`num_attention_heads` = 0"), "{heads}");
}

#[test]
fn a_missing_tensor_of_the_text_model_is_named() {
    let place = tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(folder("llava").join(file), place.path().join(file)).unwrap();
    }
    let weights = place.path().join("model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    let name = "language_model.model.norm.weight";
    let at = bytes
        .windows(name.len())
        .position(|part| part == name.as_bytes());
    let mut bytes = bytes;
    bytes[at.unwrap()] = b'L';
    fs::write(&weights, bytes).unwrap();
    let model = HuggingFaceModel::open(place.path()).unwrap();
    let error = model.decoder::<Flex>(&Default::default()).unwrap_err();
    assert!(error.to_string().contains("model.norm.weight"), "{error}");
}
