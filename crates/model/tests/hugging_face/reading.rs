//! Every fixture is read as the model defined in `make_families.py`, and old and unusual field formats are supported.

use emberlm_model::config::{FullLayers, Norm, RotaryScaling, Window, Wiring};
use emberlm_model::hugging_face::{HuggingFaceModel, read_config};
use emberlm_model::weights::Element;
use emberlm_model::{Activation, Family, RotaryLayout, count};
use serde_json::json;

use super::{changed, fixture, fixtures, stored};

/// Sizes in `make_families.py`: vocabulary, width, layers, query heads, key-value heads, head width and hidden width.
/// The context is always 64.
const SIZES: [(&str, Family, [usize; 7]); 52] = [
    ("bloom-slopes", Family::Bloom, [71, 48, 2, 12, 12, 4, 192]),
    ("cohere-bias", Family::Cohere, [67, 20, 2, 2, 2, 10, 28]),
    ("cohere-tied", Family::Cohere, [71, 32, 3, 4, 2, 8, 40]),
    ("falcon-grouped", Family::Falcon, [67, 32, 2, 4, 2, 8, 28]),
    (
        "falcon-multiquery",
        Family::Falcon,
        [71, 24, 3, 3, 1, 8, 40],
    ),
    (
        "falcon-sequential",
        Family::Falcon,
        [67, 20, 2, 2, 2, 10, 36],
    ),
    ("gemma2-bias", Family::Gemma2, [67, 24, 2, 3, 1, 10, 28]),
    ("gemma2-tied", Family::Gemma2, [71, 24, 3, 4, 2, 10, 40]),
    (
        "gemma3_text-mixed",
        Family::Gemma3Text,
        [71, 24, 3, 4, 2, 10, 40],
    ),
    (
        "gemma3_text-pattern",
        Family::Gemma3Text,
        [67, 16, 7, 2, 1, 6, 20],
    ),
    ("glm4-half", Family::Glm4, [71, 24, 3, 4, 2, 12, 40]),
    ("glm4-nobias", Family::Glm4, [67, 20, 2, 2, 1, 8, 28]),
    ("gpt2-hub", Family::Gpt2, [73, 20, 3, 2, 2, 10, 80]),
    ("gpt2-tied", Family::Gpt2, [71, 24, 2, 4, 4, 6, 96]),
    ("gpt2-untied", Family::Gpt2, [67, 24, 2, 3, 3, 8, 40]),
    ("gpt_neox-hub", Family::GptNeox, [67, 32, 3, 4, 4, 8, 40]),
    (
        "gpt_neox-nobias",
        Family::GptNeox,
        [71, 20, 3, 2, 2, 10, 36],
    ),
    ("gpt_neox-odd", Family::GptNeox, [67, 30, 2, 3, 3, 10, 40]),
    (
        "gpt_neox-parallel",
        Family::GptNeox,
        [83, 32, 3, 2, 2, 16, 48],
    ),
    (
        "gpt_neox-sequential",
        Family::GptNeox,
        [67, 24, 2, 3, 3, 8, 56],
    ),
    ("gptj-partial", Family::Gptj, [67, 32, 2, 4, 4, 8, 128]),
    ("gptj-whole", Family::Gptj, [67, 20, 3, 2, 2, 10, 28]),
    ("granite-bias", Family::Granite, [67, 20, 2, 2, 1, 10, 28]),
    ("granite-tied", Family::Granite, [71, 24, 3, 4, 2, 6, 40]),
    ("llama-bias", Family::Llama, [71, 24, 2, 6, 3, 4, 44]),
    ("llama-gqa", Family::Llama, [73, 32, 3, 4, 2, 8, 44]),
    ("llama-oldconfig", Family::Llama, [67, 24, 3, 4, 2, 6, 40]),
    ("llama-scaled", Family::Llama, [67, 24, 2, 4, 1, 12, 36]),
    ("mistral-full", Family::Mistral, [67, 20, 2, 3, 1, 10, 36]),
    ("mistral-window", Family::Mistral, [71, 24, 3, 4, 2, 6, 40]),
    ("mixtral-top2", Family::Mixtral, [71, 24, 3, 4, 2, 6, 20]),
    ("mixtral-window", Family::Mixtral, [67, 20, 2, 3, 1, 10, 16]),
    ("olmo2-gqa", Family::Olmo2, [71, 32, 3, 4, 2, 8, 40]),
    ("olmo2-yarn", Family::Olmo2, [67, 36, 2, 3, 1, 12, 28]),
    ("olmo3-mixed", Family::Olmo3, [71, 32, 4, 4, 2, 8, 28]),
    ("olmoe-gqa", Family::Olmoe, [71, 24, 2, 4, 2, 6, 12]),
    ("olmoe-norm", Family::Olmoe, [67, 20, 2, 2, 2, 10, 16]),
    ("phi3-gqa", Family::Phi3, [67, 30, 2, 3, 1, 10, 28]),
    ("phi3-longrope", Family::Phi3, [71, 32, 2, 4, 2, 8, 40]),
    (
        "phi3-longrope-short",
        Family::Phi3,
        [67, 24, 2, 3, 1, 8, 28],
    ),
    ("phi3-window", Family::Phi3, [71, 32, 3, 4, 4, 8, 40]),
    ("qwen2-mixed", Family::Qwen2, [67, 24, 3, 2, 1, 12, 40]),
    ("qwen2-tied", Family::Qwen2, [79, 32, 3, 4, 2, 8, 44]),
    (
        "qwen2_moe-shared",
        Family::Qwen2Moe,
        [71, 24, 3, 4, 2, 6, 28],
    ),
    ("qwen3-bias", Family::Qwen3, [67, 16, 3, 3, 1, 10, 28]),
    ("qwen3-tied", Family::Qwen3, [73, 24, 3, 4, 2, 12, 40]),
    (
        "qwen3_moe-mixed",
        Family::Qwen3Moe,
        [73, 24, 4, 4, 2, 12, 40],
    ),
    (
        "qwen3_moe-sparse",
        Family::Qwen3Moe,
        [67, 16, 3, 2, 1, 8, 28],
    ),
    (
        "smollm3-dynamic",
        Family::Smollm3,
        [67, 20, 3, 2, 1, 10, 28],
    ),
    ("smollm3-tied", Family::Smollm3, [71, 24, 4, 4, 2, 6, 40]),
    (
        "starcoder2-nobias",
        Family::Starcoder2,
        [67, 30, 2, 3, 1, 10, 28],
    ),
    (
        "starcoder2-tied",
        Family::Starcoder2,
        [71, 24, 3, 4, 2, 6, 40],
    ),
];

#[test]
fn every_fixture_is_the_generated_model() {
    assert_eq!(fixtures(), SIZES.map(|(name, ..)| name));
    for (name, family, sizes) in SIZES {
        let model = HuggingFaceModel::open(&fixture(name)).unwrap();
        let config = model.config();
        assert_eq!(config.family(), family, "{name}");
        assert_eq!(config.seq_len(), 64, "{name}");
        let found = [
            config.vocab_size(),
            config.d_model(),
            config.n_layers(),
            config.heads(),
            config.kv_heads(),
            config.head_dim(),
            config.feed_forward_width(),
        ];
        assert_eq!(found, sizes, "{name}");
        let windows = match name {
            "gemma2-bias" => Some((6, vec![0])),
            "gemma2-tied" => Some((5, vec![1])),
            "gemma3_text-pattern" => Some((4, vec![5])),
            "gemma3_text-mixed" => Some((5, vec![1])),
            "mistral-window" => Some((7, vec![])),
            "mixtral-window" => Some((6, vec![])),
            "olmo3-mixed" => Some((5, vec![3])),
            "phi3-window" | "starcoder2-tied" => Some((6, vec![])),
            "qwen3_moe-sparse" => Some((5, vec![])),
            "qwen2-mixed" => Some((6, vec![0])),
            "qwen2_moe-shared" => Some((5, vec![1])),
            "qwen3-bias" => Some((5, vec![1])),
            _ => None,
        };
        let windows = windows.map(|(tokens, full_layers)| Window {
            full_layers: FullLayers::Listed(full_layers),
            ..Window::new(tokens)
        });
        assert_eq!(config.window(), windows.as_ref(), "{name}");
        let element = match name {
            "gptj-whole" | "llama-bias" | "mixtral-window" | "starcoder2-nobias" => Element::Bf16,
            "glm4-nobias" | "gpt_neox-nobias" => Element::F16,
            _ => Element::F32,
        };
        assert_eq!(model.element().unwrap(), element, "{name}");
    }
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

/// A file may omit fields that equal the defaults of the configuration classes in transformers. The expected parameter
/// counts are those of its default models.
#[test]
fn missing_fields_have_defaults_of_type() {
    for (model_type, parameters) in [
        ("gpt2", 124_439_808),
        ("gptj", 6_050_882_784),
        ("gpt_neox", 20_554_567_680),
        ("llama", 6_738_415_616),
        ("mistral", 7_241_732_096),
        ("qwen2", 12_049_846_272),
        ("qwen3", 12_049_461_248),
        ("gemma2", 2_614_341_888),
        ("mixtral", 46_702_792_704),
        ("qwen2_moe", 14_315_784_192),
        ("qwen3_moe", 15_350_731_776),
        ("olmoe", 13_361_612_800),
        ("olmo2", 6_888_624_128),
        ("olmo3", 6_888_624_128),
        ("smollm3", 3_075_098_624),
        ("phi3", 3_821_079_552),
        ("granite", 6_738_415_616),
        ("gemma3_text", 2_628_658_432),
        ("starcoder2", 3_030_371_328),
        ("cohere", 34_980_831_232),
        ("glm4", 9_400_279_040),
        ("bloom", 16_156_544),
        ("falcon", 6_921_720_704),
    ] {
        let fields = json!({ "model_type": model_type });
        let config = read_config(fields.as_object().unwrap()).unwrap();
        let found = count::parameters(&config).total;
        assert_eq!(found, parameters, "{model_type}");
        let epsilon = match model_type {
            "olmo2" | "olmo3" | "phi3" | "mixtral" | "olmoe" => 1e-5,
            "glm4" => 1.5625e-7,
            _ if matches!(config.norm(), Norm::Layer { .. }) => 1e-5,
            _ => 1e-6,
        };
        assert_eq!(config.norm_epsilon(), epsilon, "{model_type}");
        let activation = match model_type {
            "gpt2" | "gptj" => Activation::GeluTanh,
            "gpt_neox" | "falcon" => Activation::Gelu,
            "gemma2" | "gemma3_text" | "starcoder2" | "bloom" => Activation::GeluTanh,
            _ => Activation::Silu,
        };
        assert_eq!(config.activation(), activation, "{model_type}");
        let wiring = match model_type {
            "gptj" | "cohere" | "falcon" => Wiring::Parallel { shared_norm: true },
            "gpt_neox" => Wiring::Parallel { shared_norm: false },
            "gemma2" | "gemma3_text" | "glm4" => Wiring::Sandwich,
            "olmo2" | "olmo3" => Wiring::OutputNorm,
            _ => Wiring::PreNorm,
        };
        assert_eq!(config.wiring(), wiring, "{model_type}");
        let window = match model_type {
            "mistral" => Some(((0..0), 1)),
            "gemma2" => Some(((1..26), 2)),
            "gemma3_text" => Some(((5..26), 6)),
            "olmo3" => Some(((3..32), 4)),
            _ => None,
        };
        let window = window.map(|(layers, step)| Window {
            full_layers: FullLayers::Listed(layers.step_by(step).collect()),
            ..Window::new(4096)
        });
        assert_eq!(config.window(), window.as_ref(), "{model_type}");
        let tied = [
            "gpt2",
            "gemma2",
            "smollm3",
            "gemma3_text",
            "starcoder2",
            "cohere",
            "bloom",
            "falcon",
        ];
        let tied = tied.contains(&model_type);
        assert_eq!(config.head().tied, tied, "{model_type}");
    }
}
