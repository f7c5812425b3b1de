//! Export, and directories that are refused.

use std::collections::BTreeMap;
use std::fs;

use emberlm_model::encoder::EncoderSettings;
use emberlm_model::hugging_face::ExportOptions;
use emberlm_model::hugging_face::HuggingFaceModel;
use emberlm_model::hugging_face::export;
use emberlm_model::weights::load_tensors;
use emberlm_model::{ConfigError, HuggingFaceError, TransformerConfig};
use serde_json::{Value, json};

use super::{MODELS, folder, open};

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
fn unsupported_fields_are_refused_with_field_and_rule() {
    for (name, field, value, message) in [
        (
            "bert-bare",
            "model_type",
            json!("albert"),
            "must be one of gpt2",
        ),
        (
            "bert-bare",
            "position_embedding_type",
            json!("relative_key"),
            "must be absolute",
        ),
        ("bert-bare", "is_decoder", json!(true), "causal"),
        (
            "bert-bare",
            "num_attention_heads",
            json!(5),
            "must divide hidden_size",
        ),
        (
            "bert-bare",
            "architectures",
            json!(["BertForQuestionAnswering"]),
            "BertForMaskedLM",
        ),
        ("bert-bare", "hidden_act", json!("mish"), "must be one of"),
        ("bert-masked", "tie_word_embeddings", json!(false), "untied"),
        (
            "roberta-token",
            "pad_token_id",
            json!(40),
            "must be less than positions",
        ),
        ("distilbert-masked", "n_heads", json!(3), "must divide dim"),
        (
            "modernbert-sequence",
            "classifier_pooling",
            json!("max"),
            "must be cls or mean",
        ),
        (
            "modernbert-bare",
            "local_attention",
            json!(1),
            "window.distance = 0: must be at least 1",
        ),
        (
            "modernbert-bare",
            "layer_types",
            json!(["full_attention"]),
            "must have 4 entries",
        ),
        (
            "modernbert-bare",
            "rope_scaling",
            json!({"rope_type": "linear", "factor": 2.0}),
            "must be in rope_parameters",
        ),
    ] {
        let error = changed(name, |fields| fields[field] = value)
            .unwrap_err()
            .to_string();
        assert!(error.contains(message), "{name} {field}: {error}");
    }
}

#[test]
fn other_sizes_than_the_files_are_errors_before_memory_is_allocated() {
    for (field, value) in [
        ("vocab_size", 62),
        ("hidden_size", 27),
        ("num_hidden_layers", 3),
    ] {
        let model = changed("bert-bare", |fields| fields[field] = json!(value)).unwrap();
        assert!(model.decoder::<B>(&Default::default()).is_err(), "{field}");
    }
    let huge = changed("bert-bare", |fields| {
        fields["vocab_size"] = json!(16_000_000)
    })
    .unwrap();
    assert!(huge.decoder::<B>(&Default::default()).is_err());
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
    let settings = || EncoderSettings::of(directory.config()).unwrap();
    let refuse = |settings: EncoderSettings, field: &str| {
        let error: ConfigError = TransformerConfig::try_from(settings).unwrap_err();
        assert_eq!(error.field, field);
    };
    refuse(
        {
            let mut s = settings();
            s.heads = 7;
            s
        },
        "heads",
    );
    refuse(
        {
            let mut s = settings();
            s.first_position = 32;
            s
        },
        "first_position",
    );
    refuse(
        {
            let mut s = settings();
            s.dropout = 1.0;
            s
        },
        "dropout",
    );
    refuse(
        {
            let mut s = settings();
            s.n_layers = 0;
            s
        },
        "n_layers",
    );
}
