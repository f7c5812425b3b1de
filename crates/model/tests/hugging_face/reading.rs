//! Every fixture is read as the model defined in `make_families.py`, and old and unusual field formats are supported.

use std::cell::RefCell;

use emberlm_model::config::{FullLayers, RotaryScaling};
use emberlm_model::hugging_face::{HuggingFaceModel, read_config};
use emberlm_model::weights::named_tensors;
use emberlm_model::{RotaryLayout, TransformerConfig, count};
use serde_json::json;

use super::{Copied, changed, fixture, fixtures, load, stored};
use crate::tables::check_table;

#[test]
fn every_fixture_is_the_generated_model() {
    let listed = RefCell::new(Vec::new());
    check_table("hugging_face/models", |name| {
        listed.borrow_mut().push(name.to_owned());
        let model = HuggingFaceModel::open(&fixture(name)).unwrap();
        let config = model.config();
        let sizes = [
            config.vocab_size(),
            config.d_model(),
            config.n_layers(),
            config.heads(),
            config.kv_heads(),
            config.head_dim(),
            config.feed_forward_width(),
            config.seq_len(),
        ];
        let sizes = sizes.map(|size| size.to_string()).join(" ");
        let element = model.element().unwrap();
        format!(
            "{:?} {sizes} {element:?}{}{}",
            config.family(),
            window(config),
            delta_nets(config)
        )
    });
    assert_eq!(fixtures(), listed.into_inner());
}

fn window(config: &TransformerConfig) -> String {
    let Some(window) = config.window() else {
        return String::new();
    };
    let FullLayers::Listed(layers) = &window.full_layers else {
        panic!("{window:?}");
    };
    assert_eq!(window.global_tokens, 0);
    format!(", window {} except in {layers:?}", window.tokens)
}

/// The heads of keys and values, their widths, the taps and the blocks.
fn delta_nets(config: &TransformerConfig) -> String {
    let Some(nets) = config.delta_nets() else {
        return String::new();
    };
    let sizes = [
        nets.key_heads,
        nets.value_heads,
        nets.key_dim,
        nets.value_dim,
    ];
    let sizes = sizes.map(|size| size.unwrap().to_string()).join(" ");
    let layers = nets.layers(config.n_layers());
    format!(", delta nets {sizes} {} in {layers:?}", nets.taps)
}

#[test]
fn parameter_counts_match_files() {
    for name in fixtures() {
        let folder = fixture(&name);
        let weights = stored(&folder).into_iter().filter(|(name, _)| {
            let buffers = [".attn.bias", ".attention.bias", "masked_bias", "inv_freq"];
            !buffers.iter().any(|end| name.ends_with(end))
        });
        let elements: usize = weights
            .map(|(_, t)| t.shape.iter().product::<usize>())
            .sum();
        let model = HuggingFaceModel::open(&folder).unwrap();
        assert_eq!(count::parameters(model.config()).total, elements, "{name}");
    }
}

/// As `make_families.py` sets them: experts, those of a token, an expert's width, whether weights are normalized, and the
/// layers without experts.
#[test]
fn experts_are_read() {
    for (name, sizes, normalize, dense) in [
        ("mixtral-top2", [5, 2, 20], true, vec![]),
        ("mixtral-window", [3, 1, 16], true, vec![]),
        ("olmoe-gqa", [6, 3, 12], false, vec![]),
        ("olmoe-norm", [4, 2, 16], true, vec![]),
        ("qwen2_moe-shared", [5, 2, 12], false, vec![2]),
        ("qwen3_moe-mixed", [6, 3, 14], true, vec![1]),
        ("qwen3_moe-sparse", [4, 2, 12], false, vec![0, 2]),
    ] {
        let model = HuggingFaceModel::open(&fixture(name)).unwrap();
        let experts = model.config().experts().unwrap();
        let width = experts.width.unwrap();
        assert_eq!([experts.count, experts.active, width], sizes, "{name}");
        assert_eq!(experts.normalize, normalize, "{name}");
        assert_eq!(experts.dense_layers, dense, "{name}");
    }
    let published = json!({"num_experts": 8, "num_local_experts": null});
    let config = changed("qwen3_moe-mixed", published).unwrap();
    assert_eq!(config.experts().unwrap().count, 8);
    let base = json!({"rope_parameters": null});
    assert_eq!(rotary("mixtral-window", base).1, 1_000_000.0);
}

fn rotary(name: &str, changes: serde_json::Value) -> (usize, f64, RotaryLayout, RotaryScaling) {
    let rotary = changed(name, changes).unwrap().rotary().unwrap();
    (rotary.dims, rotary.base, rotary.layout, rotary.scaling)
}

#[test]
fn positions_match_each_type() {
    let half = RotaryLayout::HalfSplit;
    let none = || RotaryScaling::None;
    let as_is = |name| rotary(name, json!({}));
    assert_eq!(as_is("gpt_neox-parallel"), (4, 1e4, half, none()));
    assert_eq!(as_is("gpt_neox-nobias"), (4, 1e4, half, none()));
    assert_eq!(as_is("gpt_neox-hub"), (2, 1e4, half, none()));
    assert_eq!(as_is("gpt_neox-sequential"), (8, 500.0, half, none()));
    assert_eq!(as_is("gpt_neox-odd"), (5, 100.0, half, none()));
    let neighbours = RotaryLayout::Interleaved;
    assert_eq!(as_is("gptj-partial"), (4, 1e4, neighbours, none()));
    assert_eq!(as_is("qwen2-tied"), (8, 1e6, half, none()));
    let linear = RotaryScaling::Linear { factor: 2.0 };
    assert_eq!(as_is("llama-oldconfig"), (6, 5000.0, half, linear));
    let llama3 = RotaryScaling::Llama3 {
        factor: 8.0,
        low_frequency_factor: 1.0,
        high_frequency_factor: 4.0,
        original_seq_len: 32,
    };
    assert_eq!(as_is("llama-scaled"), (12, 100.0, half, llama3));
}

fn long_rope(changes: serde_json::Value) -> (Vec<f64>, Vec<f64>, f64, usize) {
    match rotary("phi3-longrope", changes).3 {
        RotaryScaling::LongRope {
            short_factor,
            long_factor,
            attention_factor,
            original_seq_len,
        } => {
            let attention_factor = attention_factor.unwrap();
            (
                short_factor,
                long_factor,
                attention_factor,
                original_seq_len,
            )
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn longrope_has_the_factors_of_its_file() {
    let (short, long, factor, original) = long_rope(json!({}));
    assert_eq!(short, [1.0, 1.25, 1.5]);
    assert_eq!(long, [1.5, 4.0, 16.0]);
    // The context is sixteen times as long as the original one: √(1 + ln 16 / ln 4) = √3.
    assert!((factor - 3f64.sqrt()).abs() < 1e-12);
    assert_eq!(original, 4);
    let parameters = |kind: &str, more: serde_json::Value| {
        let mut parameters = json!({
            "short_factor": [1, 1, 2], "long_factor": [3, 4, 5], "rope_theta": 500.0, "partial_rotary_factor": 0.75,
            "original_max_position_embeddings": 8,
        });
        parameters["rope_type"] = kind.into();
        let more = more.as_object().unwrap().clone();
        parameters.as_object_mut().unwrap().extend(more);
        parameters
    };
    // The files of Phi-3 have the original length beside the other fields; those of other types within.
    let (.., factor, original) =
        long_rope(json!({"rope_scaling": parameters("su", json!({"attention_factor": 1.25}))}));
    assert_eq!((factor, original), (1.25, 4));
    let growth = parameters("yarn", json!({"factor": 4.0}));
    let (.., factor, _) = long_rope(json!({"rope_scaling": growth}));
    assert!((factor - 2f64.sqrt()).abs() < 1e-12);
    let no_length = json!({
        "original_max_position_embeddings": null, "max_position_embeddings": 8192,
        "rope_parameters": parameters("longrope", json!({})),
    });
    assert_eq!(long_rope(no_length).3, 4096);
}

#[test]
fn old_and_new_fields_are_equivalent() {
    // One model in the formats of transformers 4 and 5. If both are present, the older field wins, as in transformers.
    let old = json!({"rope_scaling": {"type": "linear", "factor": 8.0}, "rope_theta": 7.0});
    let linear = RotaryScaling::Linear { factor: 8.0 };
    assert_eq!(rotary("llama-oldconfig", old.clone()).3, linear);
    assert_eq!(rotary("llama-oldconfig", old).1, 7.0);
    let twice = json!({
        "rope_scaling": {"rope_type": "linear", "factor": 8.0, "rope_theta": 7.0},
        "rope_parameters": {"rope_type": "default", "rope_theta": 5.0},
    });
    assert_eq!(rotary("llama-oldconfig", twice.clone()).3, linear);
    assert_eq!(rotary("llama-oldconfig", twice).1, 7.0);
    let explicit = json!({"rope_scaling": {"rope_type": "default"}});
    assert_eq!(rotary("llama-oldconfig", explicit).3, RotaryScaling::None);
    let null = json!({"rope_scaling": null});
    assert_eq!(rotary("llama-oldconfig", null).3, RotaryScaling::None);
}

#[test]
fn null_is_the_default() {
    let config = changed("gpt2-untied", json!({"n_inner": null})).unwrap();
    assert_eq!(config.feed_forward_width(), 4 * 24);
    let config = changed("llama-gqa", json!({"num_key_value_heads": null})).unwrap();
    assert_eq!(config.kv_heads(), 4);
    let config = changed("mistral-window", json!({"sliding_window": null})).unwrap();
    assert_eq!(config.window(), None);
}

/// A file may omit fields that equal the defaults of the configuration classes in transformers.
#[test]
fn missing_fields_have_defaults_of_type() {
    check_table("hugging_face/defaults", |model_type| {
        let fields = json!({ "model_type": model_type });
        let config = read_config(fields.as_object().unwrap()).unwrap();
        let tied = ["untied", "tied"][usize::from(config.head().tied)];
        format!(
            "{} parameters, {:?}, {:?}, {tied}, epsilon {:?}{}",
            count::parameters(&config).total,
            config.activation(),
            config.wiring(),
            config.norm_epsilon(),
            window(&config)
        )
    });
}

/// Blocks after the last one of the configuration predict further tokens.
#[test]
fn blocks_of_multi_token_prediction_are_not_read() {
    for (name, layer) in [("deepseek_v3-groups", 3), ("glm4_moe-norms", 3)] {
        let copied = Copied::of(name);
        copied.rewrite(|tensors| {
            let norm = tensors["model.norm.weight"].clone();
            for end in ["eh_proj", "input_layernorm", "shared_head.norm"] {
                tensors.insert(format!("model.layers.{layer}.{end}.weight"), norm.clone());
            }
        });
        let [found, expected] = [copied.0.path(), &fixture(name)].map(load);
        assert!(named_tensors(&found) == named_tensors(&expected), "{name}");
    }
}
