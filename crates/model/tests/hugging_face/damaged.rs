//! Weights that are damaged, missing or belong to another model.

use std::fs;

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
