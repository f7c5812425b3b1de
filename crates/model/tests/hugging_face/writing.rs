//! Exports are byte-identical to the directory that was read, and settings that a model type cannot express are
//! rejected.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::Flex;
use emberlm_model::config::{
    AttentionKind, Biases, FeedForward, FullLayers, Init, LayerPositions, ModelConfig, Norm,
    Position, QkNormSpan, ResidualMix, RotaryScaling, ValueEmbeddings, Window, Wiring,
};
use emberlm_model::hugging_face::{ExportOptions, HuggingFaceModel, export};
use emberlm_model::weights::Element;
use emberlm_model::{Activation, Family, RotaryLayout, Transformer, TransformerConfig, families};
use serde_json::{Value, json};

use super::{Stored, bits, fields_of, fixture, fixtures, initial, load, options, stored};

/// A fixture's tensors under their current names, without the masks and tables of old files.
fn weights_of(name: &str) -> BTreeMap<String, Stored> {
    let full = |tensor: String| match name {
        "gpt2-hub" => format!("transformer.{tensor}"),
        _ => tensor,
    };
    let constants = [".attn.bias", ".attention.bias", "masked_bias", "inv_freq"];
    let tensors = stored(&fixture(name)).into_iter();
    tensors
        .filter(|(tensor, _)| !constants.iter().any(|end| tensor.ends_with(end)))
        .map(|(tensor, stored)| (full(tensor), stored))
        .collect()
}

fn export_again(name: &str, folder: &Path, shard_bytes: u64) -> TransformerConfig {
    let model = HuggingFaceModel::open(&fixture(name)).unwrap();
    let options = ExportOptions {
        shard_bytes,
        ..options(model.element().unwrap())
    };
    let decoder = model.decoder::<Flex>(&Default::default()).unwrap();
    let exported = export(&decoder, folder, &options).unwrap();
    let tensors = stored(folder);
    let bytes: usize = tensors.values().map(|stored| stored.bytes.len()).sum();
    assert_eq!(exported.tensors, tensors.len(), "{name}");
    assert_eq!(exported.bytes, bytes as u64, "{name}");
    assert!(exported.files.iter().all(|file| file.exists()), "{name}");
    model.config().clone()
}

#[test]
fn every_fixture_round_trips() {
    for name in fixtures() {
        let folder = tempfile::tempdir().unwrap();
        let config = export_again(&name, folder.path(), u64::MAX);
        let expected = weights_of(&name);
        let found = stored(folder.path());
        let names = |tensors: &BTreeMap<String, Stored>| -> Vec<String> {
            tensors.keys().cloned().collect()
        };
        assert_eq!(names(&found), names(&expected), "{name}");
        for (tensor, stored) in &expected {
            assert!(found[tensor] == *stored, "{name}: {tensor}");
        }
        let again = HuggingFaceModel::open(folder.path()).unwrap();
        assert_eq!(again.config(), &config, "{name}");
    }
}

/// Compares exported model fields and the architecture with those that `transformers` wrote for each fixture.
#[test]
fn fields_match_transformers() {
    for name in fixtures() {
        // Old files use other field names.
        if name.ends_with("hub") || name.ends_with("oldconfig") {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        export_again(&name, folder.path(), u64::MAX);
        let (written, theirs) = (fields_of(folder.path()), fields_of(&fixture(&name)));
        for (field, value) in &written {
            // The list of layers says the same as the step.
            let of_layers = ["decoder_sparse_step", "mlp_only_layers"].contains(&field.as_str());
            if name == "qwen3_moe-sparse" && of_layers {
                continue;
            }
            // An export has the attention factor that follows from the two lengths, or from the fields of both scales.
            let has_factor = ["phi3-longrope", "deepseek_v2-lite", "deepseek_v3-groups"];
            if has_factor.contains(&name.as_str()) && field == "rope_parameters" {
                assert!(theirs[field].get("attention_factor").is_none());
                continue;
            }
            let expected = match theirs.get(field) {
                Some(Value::Null) if field == "n_inner" => {
                    json!(4 * theirs["n_embd"].as_u64().unwrap())
                }
                // Its file omits this default.
                None | Some(Value::Null) if field == "head_dim" => {
                    let of = |field: &str| theirs[field].as_u64().unwrap();
                    json!(of("hidden_size") / of("num_attention_heads"))
                }
                // Published files have this one of the two names.
                None if field == "num_experts" => theirs["num_local_experts"].clone(),
                Some(theirs) => theirs.clone(),
                None => panic!("{name}: {field} = {value} is none of transformers'"),
            };
            assert_eq!(value, &expected, "{name}: {field}");
        }
    }
}

#[test]
fn small_shards_have_a_valid_index() {
    for name in fixtures() {
        let folder = tempfile::tempdir().unwrap();
        let limit = 4000;
        export_again(&name, folder.path(), limit);
        let expected = weights_of(&name);
        assert!(stored(folder.path()) == expected, "{name}");
        assert!(!folder.path().join("model.safetensors").exists(), "{name}");

        let index = fs::read(folder.path().join("model.safetensors.index.json")).unwrap();
        let index: Value = serde_json::from_slice(&index).unwrap();
        let total: usize = expected.values().map(|stored| stored.bytes.len()).sum();
        assert_eq!(index["metadata"]["total_size"], total, "{name}");
        let map = index["weight_map"].as_object().unwrap();
        assert!(map.keys().eq(expected.keys()), "{name}");
        let mut shards: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (tensor, shard) in map {
            let sizes = shards.entry(shard.as_str().unwrap()).or_default();
            sizes.push(expected[tensor].bytes.len());
        }
        for (number, (shard, sizes)) in shards.iter().enumerate() {
            let (number, count) = (number + 1, shards.len());
            let name = format!("model-{number:05}-of-{count:05}.safetensors");
            assert_eq!(*shard, name);
            let is_single = sizes.len() == 1;
            assert!(
                is_single || sizes.iter().sum::<usize>() <= limit as usize,
                "{name}"
            );
        }
        assert!(shards.len() > 3, "{name}");
        let again = load(folder.path());
        assert_eq!(bits(&again), bits(&load(&fixture(&name))), "{name}");
    }
}

#[test]
fn files_of_earlier_export_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    for (name, limit) in [
        ("gpt2-tied", 4000),
        ("gpt2-untied", u64::MAX),
        ("qwen3-bias", 4000),
        ("gpt2-tied", u64::MAX),
    ] {
        export_again_over(name, folder.path(), limit);
        let [one, index] = ["model.safetensors", "model.safetensors.index.json"];
        let there = |name| folder.path().join(name).exists();
        assert!(there(one) != there(index), "one of them, whoever reads it");
        let again = load(folder.path());
        assert_eq!(bits(&again), bits(&load(&fixture(name))), "{name}");
    }
}

fn export_again_over(name: &str, folder: &Path, shard_bytes: u64) {
    let options = ExportOptions {
        shard_bytes,
        ..options(Element::F32)
    };
    export(&load(&fixture(name)), folder, &options).unwrap();
}

#[test]
fn fields_not_about_the_model_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let decoder = load(&fixture("llama-gqa"));
    let fields = json!({"bos_token_id": 1, "eos_token_id": [2, 3], "vocab_size": 12});
    let options = ExportOptions {
        fields: fields.as_object().unwrap().clone(),
        ..options(Element::Bf16)
    };
    export(&decoder, folder.path(), &options).unwrap();
    let written = fields_of(folder.path());
    assert_eq!(written["bos_token_id"], 1);
    assert_eq!(written["eos_token_id"], json!([2, 3]));
    // Fields about the model are those of the model.
    assert_eq!(written["vocab_size"], 73);
    assert_eq!(written["dtype"], "bfloat16");
    assert_eq!(written["architectures"], json!(["LlamaForCausalLM"]));
}

fn tiny(preset: &str, change: impl FnOnce(&mut ModelConfig)) -> Transformer<Flex> {
    let mut raw = families::preset(preset).unwrap().config;
    raw.vocab_size = Some(11);
    raw.seq_len = 8;
    raw.d_model = 24;
    raw.n_layers = 2;
    raw.kv_heads = raw.kv_heads.map(|_| 1);
    raw.heads = 2;
    raw.head_dim = Some(12);
    if let Position::Rotary { dims, .. } = &mut raw.position {
        *dims = dims.map(|dims| dims.min(4));
    }
    if let Some(experts) = &mut raw.experts {
        experts.dense_layers.retain(|&layer| layer < raw.n_layers);
    }
    if let Some(latent) = &mut raw.latent_attention {
        (latent.rank, latent.rope_dim) = (7, None);
        latent.query_rank = latent.query_rank.map(|_| 9);
        latent.value_dim = Some(10);
        if let Position::Rotary { dims, .. } = &mut raw.position {
            *dims = None;
        }
    }
    if let AttentionKind::Softmax {
        window: Some(window),
        ..
    } = &mut raw.attention
    {
        window.tokens = 3;
    }
    // BLOOM's model type has no field for the width.
    raw.feed_forward.width = (raw.family != Family::Bloom).then_some(20);
    // Far from zero, so that omitted parameters change the output.
    raw.init = Init::Normal {
        std: 0.3,
        scale_residual: false,
    };
    change(&mut raw);
    initial(TransformerConfig::try_from(raw).unwrap())
}

fn refused(preset: &str, change: impl FnOnce(&mut ModelConfig)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let decoder = tiny(preset, change);
    let error = export(&decoder, folder.path(), &options(Element::F32)).unwrap_err();
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "{preset}: files of a refused export");
    error.to_string()
}

#[test]
fn families_without_type_are_rejected() {
    for family in Family::decoders() {
        match family.model_type() {
            Some(name) => assert!(fixtures().iter().any(|f| f.starts_with(name)), "{name}"),
            None => {
                let name = family.name();
                let expected = format!("`transformers` has no type for the family `{name}`");
                assert_eq!(refused(name, |_| ()), expected);
            }
        }
    }
}

#[test]
fn inexpressible_models_are_rejected() {
    let cannot = |preset: &str, field: &str, change: fn(&mut ModelConfig)| {
        let error = refused(preset, change);
        let family = families::preset(preset).unwrap().config.family.name();
        let start = format!("`transformers`' type `{family}` cannot express {field}");
        assert!(error.starts_with(&start), "{preset}: {error}");
    };
    for preset in [
        "gpt2", "gptj", "gpt_neox", "llama", "mistral", "qwen2", "qwen3",
    ] {
        cannot(preset, "model.head = {", |raw| {
            raw.head.soft_cap = Some(30.0)
        });
        cannot(preset, "model.head = {", |raw| raw.head.scaled = true);
        cannot(preset, "model.norm_embedding = true", |raw| {
            raw.norm_embedding = true
        });
        cannot(preset, "model.scale_embedding = true", |raw| {
            raw.scale_embedding = true
        });
        cannot(preset, "model.position = ", |raw| {
            raw.position = Position::Sinusoidal
        });
        cannot(preset, "model.wiring = ", |raw| {
            raw.wiring = Wiring::PostNorm
        });
        cannot(preset, "model.norm = ", |raw| {
            raw.norm = Norm::UnitRms { epsilon: 1e-8 }
        });
    }
    for preset in ["gpt2", "gptj", "gpt_neox", "llama", "mistral", "qwen2"] {
        cannot(preset, "model.qk_norm = true", |raw| raw.qk_norm = true);
    }
    for preset in ["gpt2", "gptj", "gpt_neox", "llama"] {
        cannot(preset, "model.attention = ", |raw| {
            raw.attention = AttentionKind::windowed(Window::new(3));
        });
    }
    for preset in ["gpt2", "gptj", "gpt_neox"] {
        cannot(preset, "model.kv_heads = 1", |raw| raw.kv_heads = Some(1));
        cannot(preset, "model.head_dim = 10", |raw| raw.head_dim = Some(10));
        cannot(preset, "model.feed_forward = ", |raw| {
            raw.feed_forward = FeedForward::gated(Activation::Silu).with_width(20);
        });
    }
    let interleaved = |raw: &mut ModelConfig| {
        raw.position = Position::Rotary {
            dims: None,
            base: 10_000.0,
            layout: RotaryLayout::Interleaved,
            scaling: RotaryScaling::None,
        };
    };
    for preset in ["gpt2", "gpt_neox", "llama", "mistral", "qwen2", "qwen3"] {
        cannot(preset, "model.position = ", interleaved);
    }
    cannot("gptj", "model.bias = ", |raw| raw.bias.qkv = true);
    cannot("gpt_neox", "model.bias = ", |raw| raw.bias.qkv = false);
    cannot("mistral", "model.bias = ", |raw| raw.bias.qkv = true);
    cannot("qwen2", "model.bias = ", |raw| {
        raw.bias = Biases::all(false)
    });
    cannot("qwen3", "model.bias = ", |raw| raw.bias.feed_forward = true);
    cannot("mixtral", "model.experts = ", |raw| {
        raw.experts.as_mut().unwrap().normalize = false
    });
    cannot("olmoe", "model.experts = ", |raw| {
        raw.experts.as_mut().unwrap().dense_layers = vec![0]
    });
    cannot("qwen3_moe", "model.experts = ", |raw| {
        raw.experts.as_mut().unwrap().shared_width = Some(8)
    });
    cannot("llama", "model.experts = {", |raw| {
        raw.experts = families::preset("olmoe").unwrap().config.tiny().experts
    });
    for preset in ["olmo2", "olmo3"] {
        cannot(preset, "model.wiring = ", |raw| {
            raw.wiring = Wiring::PreNorm
        });
        // A default, which is not among the fields of the model's own configuration.
        cannot(preset, "model.qk_norm_span = unset", |raw| {
            raw.qk_norm_span = QkNormSpan::Head;
        });
    }
    for preset in ["gpt2", "llama", "gemma2"] {
        cannot(preset, "model.residual_mix = ", |raw| {
            raw.residual_mix = Some(ResidualMix::default());
        });
        cannot(preset, "model.value_embeddings = ", |raw| {
            raw.value_embeddings = Some(ValueEmbeddings::default());
        });
    }
    for preset in ["phi3", "starcoder2", "bloom", "falcon"] {
        cannot(preset, "model.residual_scale = 0.5", |raw| {
            raw.residual_scale = Some(0.5);
        });
        cannot(preset, "model.embedding_scale = 2.0", |raw| {
            raw.embedding_scale = Some(2.0);
        });
    }
    for preset in ["llama", "phi3", "cohere", "glm4"] {
        cannot(preset, "model.layer_positions = ", |raw| {
            raw.layer_positions = Some(LayerPositions::None {
                layers: FullLayers::Listed(vec![1]),
            });
        });
        cannot(preset, "model.position = ", |raw| {
            raw.position = Position::Alibi
        });
    }
    cannot("bloom", "model.norm_embedding = false", |raw| {
        raw.norm_embedding = false
    });
    cannot("mistral", "model.attention = ", |raw| {
        raw.attention = AttentionKind::windowed(Window {
            full_layers: FullLayers::Listed(vec![1]),
            ..Window::new(3)
        });
    });
    for preset in ["gpt2", "gptj", "gpt_neox", "llama", "qwen2", "qwen3"] {
        cannot(preset, "model.attention = ", |raw| {
            raw.attention = AttentionKind::Linear {
                features: Some(8),
                seed: 1,
            };
        });
    }
    cannot("mistral", "model.attention = ", |raw| {
        raw.attention = AttentionKind::windowed(Window {
            global_tokens: 2,
            ..Window::new(3)
        });
    });
    cannot("llama", "model.position = ", |raw| {
        raw.position = Position::Rotary {
            dims: Some(6),
            base: 10_000.0,
            layout: RotaryLayout::HalfSplit,
            scaling: RotaryScaling::None,
        };
    });
}

fn logits(decoder: &Transformer<Flex>) -> Vec<f32> {
    let ids: Vec<i64> = vec![3, 1, 4, 1, 5, 9, 2, 6];
    let tokens: Tensor<Flex, 2, Int> =
        Tensor::from_data(TensorData::new(ids, [1, 8]), &Default::default());
    decoder.forward(tokens).into_data().iter::<f32>().collect()
}

/// nanoGPT models may have no biases, but the Hugging Face type always has them.
#[test]
fn missing_parameters_are_written_as_zeros() {
    for (preset, biases) in [("char-nano", 13), ("gpt2", 13), ("gptj", 8)] {
        let decoder = tiny(preset, |raw| {
            raw.bias = Biases::all(false);
            raw.norm = Norm::Layer {
                bias: false,
                epsilon: 1e-5,
            };
            raw.head.bias = false;
        });
        let folder = tempfile::tempdir().unwrap();
        export(&decoder, folder.path(), &options(Element::F32)).unwrap();
        let tensors = stored(folder.path());
        let zeros = tensors.iter().filter(|(name, stored)| {
            assert!(!name.ends_with("bias") || stored.bytes.iter().all(|&byte| byte == 0));
            name.ends_with("bias")
        });
        assert_eq!(zeros.count(), biases, "{preset}");
        assert_eq!(logits(&load(folder.path())), logits(&decoder), "{preset}");
    }
}

/// Tiny models with the components of every preset whose family has a Hugging Face type.
#[test]
fn components_of_every_preset_round_trip() {
    let presets = families::presets().into_iter();
    for preset in presets.filter(|preset| preset.config.family.model_type().is_some()) {
        let decoder = tiny(preset.name, |_| ());
        let folder = tempfile::tempdir().unwrap();
        export(&decoder, folder.path(), &options(Element::F32)).unwrap();
        let again = load(folder.path());
        assert_eq!(logits(&again), logits(&decoder), "{}", preset.name);
    }
}
