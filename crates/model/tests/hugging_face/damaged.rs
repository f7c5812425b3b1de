//! Weights that are damaged, missing or belong to another model.

use std::fs;

use safetensors::Dtype;
use serde_json::json;

use super::{Copied, Stored, load};

const EMBEDDING: &str = "model.embed_tokens.weight";

#[test]
fn tiny_model_is_readable() {
    Copied::tiny().load().unwrap();
}

#[test]
fn truncated_file_is_rejected_at_every_length() {
    let copied = Copied::tiny();
    let whole = fs::read(copied.path("model.safetensors")).unwrap();
    for end in 0..whole.len() {
        let error = copied.write("model.safetensors", &whole[..end]).error();
        let start = "DIR: DIR/model.safetensors is not a complete safetensors file: ";
        assert!(error.starts_with(start), "{end} bytes: {error}");
    }
    let error = copied
        .write("model.safetensors", [&whole[..], b"\0"].concat())
        .error();
    assert!(
        error.contains("is not a complete safetensors file"),
        "{error}"
    );
}

#[test]
fn invalid_header_length_is_rejected() {
    let copied = Copied::tiny();
    let mut bytes = fs::read(copied.path("model.safetensors")).unwrap();
    for length in [1 << 60, u64::MAX, u64::MAX - 7, 1 << 32, 0, 1] {
        bytes[..8].copy_from_slice(&u64::to_le_bytes(length));
        let error = copied.write("model.safetensors", &bytes).error();
        let start = "DIR: DIR/model.safetensors is not a complete safetensors file: ";
        assert!(error.starts_with(start), "{length}: {error}");
    }
}

#[test]
fn vocabulary_of_another_size_names_embedding() {
    for (name, tensor, [vocab, width]) in [
        ("gpt2-tied", "transformer.wte.weight", [71, 24]),
        ("gpt2-hub", "wte.weight", [73, 20]),
        ("gptj-whole", "transformer.wte.weight", [67, 20]),
        ("gpt_neox-hub", "gpt_neox.embed_in.weight", [67, 32]),
        ("llama-bias", EMBEDDING, [71, 24]),
        ("mistral-window", EMBEDDING, [71, 24]),
        ("qwen2-tied", EMBEDDING, [79, 32]),
        ("qwen3-tied", EMBEDDING, [73, 24]),
    ] {
        let copied = Copied::of(name);
        for other in [vocab - 1, vocab + 1, 50_257] {
            copied.edit("config.json", |config| config["vocab_size"] = json!(other));
            let expected = format!(
                "DIR: tensor `{tensor}` has shape [{vocab}, {width}], the model needs [{other}, {width}]"
            );
            assert_eq!(copied.error(), expected, "{name}");
        }
    }
}

#[test]
fn missing_tensor_is_named() {
    for missing in [
        "model.layers.1.self_attn.k_proj.weight",
        "model.norm.weight",
        "lm_head.weight",
        EMBEDDING,
    ] {
        let copied = Copied::of("llama-gqa");
        copied.rewrite(|tensors| drop(tensors.remove(missing).unwrap()));
        let expected = format!("DIR: tensor `{missing}` is missing");
        assert_eq!(copied.error(), expected);
    }
}

#[test]
fn unexpected_tensor_is_named() {
    let copied = Copied::of("llama-gqa");
    copied.rewrite(|tensors| {
        let one = tensors["model.norm.weight"].clone();
        tensors.insert(
            "model.layers.3.input_layernorm.weight".to_owned(),
            one.clone(),
        );
        tensors.insert("score.weight".to_owned(), one);
    });
    let expected = "DIR: tensors left over: model.layers.3.input_layernorm.weight, score.weight";
    assert_eq!(copied.error(), expected);
    // The configuration has fewer layers than the weights.
    let copied = Copied::of("mistral-full");
    copied.edit("config.json", |config| {
        config["num_hidden_layers"] = json!(1)
    });
    let error = copied.error();
    assert!(
        error.starts_with("DIR: tensors left over: model.layers.1."),
        "{error}"
    );
}

#[test]
fn unsupported_type_is_named() {
    for (dtype, name) in [
        (Dtype::I32, "I32"),
        (Dtype::U32, "U32"),
        (Dtype::I16, "I16"),
    ] {
        let copied = Copied::of("llama-gqa");
        copied.rewrite(|tensors| {
            let norm = tensors.get_mut("model.norm.weight").unwrap();
            norm.bytes.truncate(32 * dtype.bitsize() / 8);
            norm.dtype = dtype;
        });
        let expected = format!(
            "DIR: tensor `model.norm.weight` has type {name}: only F32, F16 and BF16 are read"
        );
        assert_eq!(copied.error(), expected);
    }
}

#[test]
fn transposed_matrix_is_named() {
    let copied = Copied::of("llama-gqa");
    copied.rewrite(|tensors| {
        let map = tensors
            .get_mut("model.layers.0.mlp.up_proj.weight")
            .unwrap();
        map.shape.reverse();
    });
    let expected = "DIR: tensor `model.layers.0.mlp.up_proj.weight` has shape [32, 44], the model needs [44, 32]";
    assert_eq!(copied.error(), expected);
}

/// Some programs store a tied head twice.
#[test]
fn copy_of_tied_embedding_must_be_equal() {
    for (name, head, embedding) in [
        ("gpt2-tied", "lm_head.weight", "transformer.wte.weight"),
        ("gpt2-hub", "lm_head.weight", "wte.weight"),
        (
            "gpt_neox-nobias",
            "embed_out.weight",
            "gpt_neox.embed_in.weight",
        ),
        ("llama-scaled", "lm_head.weight", EMBEDDING),
        ("qwen3-tied", "lm_head.weight", EMBEDDING),
    ] {
        let with_head = |change: fn(&mut Stored)| {
            let copied = Copied::of(name);
            copied.rewrite(|tensors| {
                let mut copy = tensors[embedding].clone();
                change(&mut copy);
                tensors.insert(head.to_owned(), copy);
            });
            copied
        };
        let equal = with_head(|_| ());
        equal.load().unwrap();
        let expected = format!(
            "DIR: tensor `{head}` is not `{embedding}`, though the configuration ties them"
        );
        let last = with_head(|head| *head.bytes.last_mut().unwrap() ^= 1);
        assert_eq!(last.error(), expected);
        let transposed = with_head(|head| head.shape.reverse());
        assert_eq!(transposed.error(), expected);
    }
}

#[test]
fn masks_and_tables_are_ignored() {
    // Their contents must not matter.
    for (name, constants) in [
        ("gpt2-hub", &["h.0.attn.bias", "h.2.attn.masked_bias"][..]),
        (
            "gpt_neox-hub",
            &[
                "gpt_neox.layers.1.attention.bias",
                "gpt_neox.layers.0.attention.masked_bias",
                "gpt_neox.layers.2.attention.rotary_emb.inv_freq",
            ],
        ),
    ] {
        let copied = Copied::of(name);
        let before = super::bits(&load(copied.0.path()));
        copied.rewrite(|tensors| {
            for constant in constants {
                tensors.get_mut(*constant).unwrap().bytes.fill(1);
            }
        });
        assert_eq!(super::bits(&copied.load().unwrap()), before, "{name}");
    }
}

#[test]
fn pickles_and_missing_weights_are_rejected() {
    let copied = Copied::of("llama-gqa");
    copied.remove("model.safetensors");
    let expected = "DIR has no model.safetensors and no model.safetensors.index.json";
    assert_eq!(copied.error(), expected);
    for name in ["pytorch_model.bin", "pytorch_model.bin.index.json"] {
        copied.write(name, "\x02pickle");
        let expected = format!(
            "DIR/{name} is a PyTorch pickle, which can run any program when it is opened: it is not read"
        );
        assert_eq!(copied.error(), expected);
        copied.remove(name);
    }
    // Next to readable weights, pickles are ignored.
    let both = Copied::of("llama-gqa");
    both.write("pytorch_model.bin", "\x02pickle");
    both.load().unwrap();
}
