//! Unsupported features are rejected with the field, its value and the rule.

use std::fs;

use emberlm_model::HuggingFaceError;
use emberlm_model::hugging_face::HuggingFaceModel;
use serde_json::{Value, json};

use super::{Copied, changed, fields_of, fixture};

fn assert_rejected(name: &str, changes: Value, expected: &str) {
    match changed(name, changes.clone()) {
        Ok(_) => panic!("{name} with {changes} was read"),
        Err(error) => assert_eq!(error.to_string(), expected, "{name} with {changes}"),
    }
}

const ONE_OF_ACTIVATIONS: &str = "must be one of gelu, gelu_python, gelu_new, gelu_pytorch_tanh, gelu_python_tanh, \
                                  gelu_fast, gelu_accurate, relu, relu2, silu, swish";

#[test]
fn unsupported_activations() {
    for (name, field) in [
        ("gpt2-tied", "activation_function"),
        ("gptj-partial", "activation_function"),
        ("gpt_neox-parallel", "hidden_act"),
        ("llama-gqa", "hidden_act"),
        ("mistral-full", "hidden_act"),
        ("qwen2-tied", "hidden_act"),
        ("qwen3-tied", "hidden_act"),
    ] {
        for activation in ["tanh", "quick_gelu"] {
            let expected =
                format!("config.json: `{field}` = \"{activation}\": {ONE_OF_ACTIVATIONS}");
            assert_rejected(name, json!({ field: activation }), &expected);
        }
    }
}

#[test]
fn unsupported_attention() {
    for (name, changes, expected) in [
        (
            "gpt2-tied",
            json!({"scale_attn_weights": false}),
            "config.json: `scale_attn_weights` = false: unscaled attention is not computed",
        ),
        (
            "gpt2-tied",
            json!({"scale_attn_by_inverse_layer_idx": true}),
            "config.json: `scale_attn_by_inverse_layer_idx` = true: attention scaled by its layer is not computed",
        ),
        (
            "gpt2-tied",
            json!({"add_cross_attention": true}),
            "config.json: `add_cross_attention` = true: cross-attention is not computed",
        ),
        (
            "gptj-partial",
            json!({"rotary": false}),
            "config.json: `rotary` = false: GPT-J without rotary positions is not computed",
        ),
        (
            "gptj-partial",
            json!({"rotary_dim": null}),
            "config.json: `rotary_dim` = null: must be a whole number",
        ),
        (
            "gptj-partial",
            json!({"rotary_dim": 5}),
            "config.json describes no model: model.position.dims = 5: must be even and at most head_dim = 8",
        ),
        (
            "gptj-partial",
            json!({"rotary_dim": 10}),
            "config.json describes no model: model.position.dims = 10: must be even and at most head_dim = 8",
        ),
        (
            "mixtral-top2",
            json!({"router_jitter_noise": 0.1}),
            "config.json: `router_jitter_noise` = 0.1: must be 0: noise is not supported",
        ),
        (
            "mixtral-top2",
            json!({"num_experts_per_tok": 6}),
            "config.json: `num_experts_per_tok` = 6: must be at most the number of experts, 5",
        ),
        (
            "qwen3_moe-mixed",
            json!({"mlp_only_layers": 1}),
            "config.json: `mlp_only_layers` = 1: must be a list of whole numbers of at least 0",
        ),
        (
            "olmoe-gqa",
            json!({"clip_qkv": 8.0}),
            "config.json: `clip_qkv` = 8.0: clipped queries, keys and values are not supported",
        ),
        (
            "olmoe-gqa",
            json!({"head_dim": 4}),
            "config.json: `head_dim` = 4: must be hidden_size / num_attention_heads for this type",
        ),
        (
            "mistral-window",
            json!({"layer_types": vec!["full_attention"; 3]}),
            "config.json: `layer_types` = [\"full_attention\",\"full_attention\",\"full_attention\"]: layers that \
             differ are not of this type",
        ),
    ] {
        assert_rejected(name, changes, expected);
    }
}

#[test]
fn unsupported_rotary_positions() {
    let one_of = "must be one of default, linear, llama3, dynamic, yarn, longrope";
    for name in [
        "llama-gqa",
        "mistral-full",
        "qwen2-tied",
        "qwen3-tied",
        "gpt_neox-hub",
    ] {
        for kind in ["longrope2", "proportional"] {
            let new = json!({"rope_parameters": {"rope_type": kind, "factor": 4.0}});
            let expected =
                format!("config.json: `rope_parameters.rope_type` = \"{kind}\": {one_of}");
            assert_rejected(name, new, &expected);
            let old = json!({"rope_scaling": {"type": kind, "factor": 4.0}});
            let expected = format!("config.json: `rope_scaling.type` = \"{kind}\": {one_of}");
            assert_rejected(name, old, &expected);
        }
        for (parameters, expected) in [
            (
                json!({"full_attention": {"rope_type": "default"}}),
                "`rope_parameters.full_attention` = {\"rope_type\":\"default\"}: positions that differ between \
                 layers are not computed",
            ),
            (
                json!({"rope_type": "linear"}),
                "`rope_parameters.factor` = missing: must be given with linear",
            ),
            (
                json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}),
                "`rope_parameters.high_freq_factor` = missing: must be given with llama3",
            ),
            (
                json!({"rope_theta": "10000"}),
                "`rope_parameters.rope_theta` = \"10000\": must be a number",
            ),
        ] {
            let expected = format!("config.json: {expected}");
            assert_rejected(name, json!({ "rope_parameters": parameters }), &expected);
        }
        for (parameters, expected) in [
            (
                json!({"rope_type": "linear", "factor": 0}),
                "position.scaling.factor = 0: must be above 0 and finite",
            ),
            (
                json!({"rope_theta": -1}),
                "position.base = -1: must be above 0 and finite",
            ),
            (
                json!({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}),
                "position.scaling.high_frequency_factor = 4: must be above low_frequency_factor = 4",
            ),
        ] {
            let expected = format!("config.json describes no model: model.{expected}");
            assert_rejected(name, json!({ "rope_parameters": parameters }), &expected);
        }
    }
}

#[test]
fn partial_rotation_requires_support_by_type() {
    for name in ["llama-gqa", "mistral-full", "qwen2-tied", "qwen3-tied"] {
        let expected = "config.json: `partial_rotary_factor` = 0.5: must be 1 for this type";
        assert_rejected(name, json!({"partial_rotary_factor": 0.5}), expected);
        let nested = json!({"rope_parameters": {"partial_rotary_factor": 0.5}});
        let expected =
            "config.json: `rope_parameters.partial_rotary_factor` = 0.5: must be 1 for this type";
        assert_rejected(name, nested, expected);
    }
    for (part, rule) in [
        (json!(0), "must be above 0 and at most 1"),
        (json!(-0.5), "must be above 0 and at most 1"),
        (json!(1.5), "must be above 0 and at most 1"),
        (json!(0.01), "rotates no element of a head of 8"),
    ] {
        let expected = format!("config.json: `rotary_pct` = {part}: {rule}");
        assert_rejected("gpt_neox-hub", json!({ "rotary_pct": part }), &expected);
        let nested = json!({"rope_parameters": {"partial_rotary_factor": part}});
        let expected =
            format!("config.json: `rope_parameters.partial_rotary_factor` = {part}: {rule}");
        assert_rejected("gpt_neox-hub", nested, &expected);
    }
}

#[test]
fn unsupported_layer_types() {
    for name in ["qwen2-mixed", "qwen3-bias"] {
        for (types, rule) in [
            (json!(vec!["full_attention"; 2]), "must have 3 entries"),
            (json!(vec!["full_attention"; 4]), "must have 3 entries"),
            (json!([]), "must have 3 entries"),
            (
                json!(["full_attention", "linear_attention", "full_attention"]),
                "must be of sliding_attention and full_attention",
            ),
            (json!([1, 2, 3]), "must be a list of strings"),
            (json!("full_attention"), "must be a list of strings"),
        ] {
            let expected = format!("config.json: `layer_types` = {types}: {rule}");
            assert_rejected(name, json!({ "layer_types": types }), &expected);
        }
        let types = fields_of(&fixture(name))["layer_types"].clone();
        let expected = format!(
            "config.json: `layer_types` = {types}: slides without use_sliding_window and sliding_window"
        );
        for changes in [
            json!({"sliding_window": null}),
            json!({"use_sliding_window": false}),
        ] {
            assert_rejected(name, changes, &expected);
        }
    }
}

#[test]
fn indivisible_heads() {
    for (name, changes, expected) in [
        (
            "llama-oldconfig",
            json!({"num_attention_heads": 5}),
            "config.json: `num_attention_heads` = 5: must divide hidden_size = 24",
        ),
        (
            "llama-gqa",
            json!({"num_key_value_heads": 3}),
            "config.json describes no model: model.kv_heads = 3: must divide heads = 4",
        ),
        (
            "qwen3-tied",
            json!({"num_key_value_heads": 8}),
            "config.json describes no model: model.kv_heads = 8: must divide heads = 4",
        ),
        (
            "gpt2-tied",
            json!({"n_head": 5}),
            "config.json: `n_head` = 5: must divide n_embd = 24",
        ),
        (
            "gptj-partial",
            json!({"n_head": 3}),
            "config.json: `n_head` = 3: must divide n_embd = 32",
        ),
        (
            "gpt_neox-hub",
            json!({"num_attention_heads": 5}),
            "config.json: `num_attention_heads` = 5: must divide hidden_size = 32",
        ),
        (
            "gpt_neox-hub",
            json!({"num_attention_heads": 64}),
            "config.json: `num_attention_heads` = 64: must divide hidden_size = 32",
        ),
    ] {
        assert_rejected(name, changes, expected);
    }
}

#[test]
fn other_quantizations_and_types() {
    let one_of = "must be one of gpt2, gptj, gpt_neox, llama, mistral, mixtral, qwen2, qwen2_moe, qwen3, qwen3_moe, olmoe, \
                  gemma2, olmo2, olmo3, smollm3, phi3, granite, gemma3_text, starcoder2, cohere, glm4, bloom, falcon, bert, roberta, xlm-roberta, \
                  distilbert, modernbert, t5, mt5";
    for (changes, expected) in [
        (
            json!({"quantization_config": {"bits": 4}}),
            "`quantization_config.quant_method` = missing: must be compressed-tensors".to_owned(),
        ),
        (
            json!({"model_type": "albert"}),
            format!("`model_type` = \"albert\": {one_of}"),
        ),
        (
            json!({"model_type": "GPT2"}),
            format!("`model_type` = \"GPT2\": {one_of}"),
        ),
        (
            json!({"model_type": null}),
            "`model_type` = null: must be given".to_owned(),
        ),
        (
            json!({"model_type": 7}),
            "`model_type` = 7: must be a string".to_owned(),
        ),
    ] {
        assert_rejected("llama-gqa", changes, &format!("config.json: {expected}"));
    }
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

#[test]
fn damaged_longrope_factors() {
    let list = "must be a list of numbers";
    let missing = "must be given with longrope";
    for (name, value, expected) in [
        (
            "short_factor",
            json!(null),
            format!("`rope_parameters.short_factor` = null: {missing}"),
        ),
        (
            "long_factor",
            json!(null),
            format!("`rope_parameters.long_factor` = null: {missing}"),
        ),
        (
            "long_factor",
            json!(2.0),
            format!("`rope_parameters.long_factor` = 2.0: {list}"),
        ),
        (
            "short_factor",
            json!(["a"]),
            format!("`rope_parameters.short_factor` = [\"a\"]: {list}"),
        ),
    ] {
        let expected = format!("config.json: {expected}");
        assert_rejected("phi3-longrope", with_long_rope(name, value), &expected);
    }
    let one_each = "must have 3 numbers, one for each rotated pair";
    for (name, value, expected) in [
        (
            "short_factor",
            json!([1.0, 2.0]),
            format!("short_factor = 2 numbers: {one_each}"),
        ),
        (
            "long_factor",
            json!([1, 2, 3, 4]),
            format!("long_factor = 4 numbers: {one_each}"),
        ),
        (
            "long_factor",
            json!([1, 0, 3]),
            "long_factor = 0: must be above 0 and finite".to_owned(),
        ),
        (
            "short_factor",
            json!([1, -2, 3]),
            "short_factor = -2: must be above 0 and finite".to_owned(),
        ),
        (
            "attention_factor",
            json!(-1),
            "attention_factor = -1: must be above 0 and finite".to_owned(),
        ),
    ] {
        let expected = format!("config.json describes no model: model.position.scaling.{expected}");
        assert_rejected("phi3-longrope", with_long_rope(name, value), &expected);
    }
    let expected = "config.json describes no model: model.position.scaling.original_seq_len = 1: must be at least 2";
    let original = json!({"original_max_position_embeddings": 1});
    assert_rejected("phi3-longrope", original, expected);
}

/// The fixture's scaling with another value of a field.
fn with_long_rope(name: &str, value: Value) -> Value {
    let mut parameters = fields_of(&fixture("phi3-longrope"))["rope_parameters"].clone();
    parameters[name] = value;
    json!({ "rope_parameters": parameters })
}
