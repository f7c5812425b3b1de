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

fn fixture(name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/adapters");
    fixtures.join(name)
}

/// A copy of an adapter, with other values of some fields.
fn changed(name: &str, changes: &Value) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let read = fs::read(fixture(name).join(ADAPTER_CONFIG_FILE)).unwrap();
    let mut fields: Value = serde_json::from_slice(&read).unwrap();
    for (field, value) in changes.as_object().unwrap() {
        fields[field] = value.clone();
    }
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

fn assert_rejected(name: &str, changes: &Value, expected: &[&str]) {
    let folder = changed(name, changes);
    match added(name, folder.path()) {
        Ok(()) => panic!("{changes} was read"),
        Err(error) => {
            let error = error.to_string();
            for part in expected {
                assert!(error.contains(part), "{changes}: {error}");
            }
        }
    }
}

fn assert_read(name: &str, changes: &Value) {
    let folder = changed(name, changes);
    if let Err(error) = added(name, folder.path()) {
        panic!("{changes}: {error}");
    }
}

#[test]
fn initializations_that_change_the_base_are_rejected() {
    for name in [
        "pissa",
        "pissa_niter_16",
        "olora",
        "OLoRA",
        "corda",
        "loftq",
        "lora_ga",
    ] {
        let expected = [
            "`init_lora_weights`",
            name,
            "changes the weights of the base model",
        ];
        assert_rejected(
            "llama-lora",
            &json!({ "init_lora_weights": name }),
            &expected,
        );
    }
    for unknown in [json!("other"), json!(""), json!(3), json!(["pissa"])] {
        let expected = ["`init_lora_weights`", "no such initialization"];
        assert_rejected(
            "llama-lora",
            &json!({ "init_lora_weights": unknown }),
            &expected,
        );
    }
    let plain = json!([
        true,
        false,
        null,
        "gaussian",
        "Gaussian",
        "eva",
        "orthogonal",
        "mica"
    ]);
    for plain in plain.as_array().unwrap() {
        assert_read("llama-lora", &json!({ "init_lora_weights": plain }));
    }
}

#[test]
fn ranks_that_differ_from_the_tensors_are_rejected_with_both() {
    let expected = ["`r`", "q_proj", "the rank 8", "have 4"];
    assert_rejected("llama-lora", &json!({"r": 8}), &expected);
    let pattern = json!({"rank_pattern": {"v_proj": 2}});
    let expected = ["`rank_pattern`", "v_proj", "the rank 2", "have 4"];
    assert_rejected("llama-lora", &pattern, &expected);
    // The default is 8.
    assert_rejected("llama-lora", &json!({"r": null}), &["the rank 8"]);
}

#[test]
fn layers_that_the_settings_leave_out_are_rejected() {
    for (changes, field, module) in [
        (
            json!({"target_modules": ["v_proj"]}),
            "target_modules",
            "layers.0.self_attn.q_proj",
        ),
        (
            json!({"exclude_modules": ["layers.1.self_attn.v_proj"]}),
            "exclude_modules",
            "layers.1.self_attn.v_proj",
        ),
        (
            json!({"layers_to_transform": [0]}),
            "layers_to_transform",
            "layers.1.self_attn.q_proj",
        ),
        (
            json!({"layers_to_transform": 1}),
            "layers_to_transform",
            "layers.0.self_attn.q_proj",
        ),
        (
            json!({"layers_to_transform": [0, 1], "layers_pattern": ["h"]}),
            "layers_to_transform",
            "layers.0.self_attn.q_proj",
        ),
    ] {
        assert_rejected("llama-lora", &changes, &[field, "leaves out", module]);
    }
    for changes in [
        json!({"layers_to_transform": [0, 1], "layers_pattern": "layers"}),
        json!({"layers_to_transform": [], "exclude_modules": []}),
        json!({"target_modules": "all-linear"}),
        json!({"target_modules": r".*\.(q|v)_proj"}),
        json!({"exclude_modules": ["k_proj"]}),
    ] {
        assert_read("llama-lora", &changes);
    }
}

#[test]
fn unsupported_features_are_rejected_and_defaults_are_not() {
    for (field, value) in [
        ("use_qalora", json!(true)),
        ("lora_bias", json!(true)),
        ("megatron_config", json!({"size": 1})),
        ("trainable_token_indices", json!([1, 2])),
        ("target_parameters", json!(["experts.up_proj"])),
        ("layer_replication", json!([[0, 1]])),
        ("alora_invocation_tokens", json!([3])),
        ("arrow_config", json!({"top_k": 1})),
        ("kasa_config", json!({"beta": 1})),
        ("monteclora_config", json!({"num_samples": 1})),
        ("use_bdlora", json!({"nblocks": 2})),
        ("peft_type", json!("LOHA")),
        ("task_type", json!("QUESTION_ANS")),
        ("a_new_field", json!(1)),
        ("rank_pattern", json!({"(q|v)_proj": 4})),
    ] {
        let expected = [format!("`{field}`")];
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        assert_rejected("llama-lora", &json!({ field: value }), &expected);
    }
    let read = fs::read(fixture("llama-lora").join(ADAPTER_CONFIG_FILE)).unwrap();
    let fields: Value = serde_json::from_slice(&read).unwrap();
    for field in fields.as_object().unwrap().keys() {
        // Their defaults are other values than those of the file.
        if !["r", "lora_alpha"].contains(&field.as_str()) {
            assert_read("llama-lora", &json!({ field: null }));
        }
    }
    for (field, value) in [
        ("lora_bias", json!(false)),
        ("layer_replication", json!([])),
        ("a_new_field", json!(false)),
        ("loftq_config", json!({"loftq_bits": 4})),
        ("eva_config", json!({"rho": 2.0})),
        ("runtime_config", json!({"ephemeral_gpu_offload": true})),
        (
            "rank_pattern",
            json!({"^model.layers.0.self_attn.q_proj$": 4}),
        ),
    ] {
        assert_read("llama-lora", &json!({ field: value }));
    }
}

/// A copy of an adapter whose tensors have the names that `rename` returns; `None` leaves a tensor out.
fn renamed(rename: impl Fn(&str) -> Option<String>) -> TempDir {
    let folder = changed("llama-lora", &json!({ "target_modules": null }));
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
    for (a, b, expected) in [
        (
            "lm_head.lora_A.weight",
            Some("lm_head.lora_B.weight"),
            "for `lm_head`: low-rank updates are supported of the linear layers of blocks only",
        ),
        (
            "model.embed_tokens.lora_embedding_A",
            Some("model.embed_tokens.lora_embedding_B"),
            "for `model.embed_tokens`: low-rank updates of embeddings are not supported",
        ),
        (
            "model.norm.weight",
            None,
            "for `model.norm`: `modules_to_save` and `bias` do not name it",
        ),
        (
            "model.layers.0.self_attn.v_proj.lora_magnitude_vector",
            None,
            "`use_dora` is false",
        ),
        (
            "model.layers.9.mlp.up_proj.lora_A.weight",
            None,
            "the adapter is for another model",
        ),
    ] {
        let folder = renamed(|name| match name.strip_prefix(own) {
            None => Some(name.to_owned()),
            Some("A.weight") => Some(format!("base_model.model.{a}")),
            Some(_) => b.map(|b| format!("base_model.model.{b}")),
        });
        let error = added("llama-lora", folder.path()).unwrap_err().to_string();
        assert!(error.contains(expected), "{a}: {error}");
    }
}
