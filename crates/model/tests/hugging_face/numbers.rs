//! Invalid numbers in `config.json` cause an error that names the field.

use emberlm_model::HuggingFaceError;
use serde_json::{Value, json};

use super::changed;

const GPT2: [&str; 6] = [
    "n_positions",
    "n_embd",
    "n_layer",
    "n_head",
    "n_inner",
    "vocab_size",
];
const LLAMA: [&str; 8] = [
    "max_position_embeddings",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
];
const NEOX: [&str; 6] = [
    "max_position_embeddings",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
];

type Names = Vec<&'static str>;

/// One fixture per model type, with its size fields, other numeric fields and boolean fields.
fn types() -> [(&'static str, Names, Names, Names); 7] {
    let of = |name, sizes: &[&'static str], more: &[&'static str], numbers: &[_], flags: &[_]| {
        let sizes = sizes.iter().chain(more).copied().collect();
        (name, sizes, numbers.to_vec(), flags.to_vec())
    };
    let norm = ["rms_norm_eps", "initializer_range"];
    let tied = "tie_word_embeddings";
    let windows = ["sliding_window"];
    [
        of(
            "gpt2-tied",
            &GPT2,
            &[],
            &["layer_norm_epsilon", "initializer_range"],
            &[tied, "scale_attn_weights", "add_cross_attention"],
        ),
        of(
            "gptj-partial",
            &GPT2,
            &["rotary_dim"],
            &["layer_norm_epsilon", "initializer_range"],
            &[tied, "rotary"],
        ),
        of(
            "gpt_neox-hub",
            &NEOX,
            &[],
            &["layer_norm_eps", "rotary_pct", "rotary_emb_base"],
            &[tied, "attention_bias", "use_parallel_residual"],
        ),
        of(
            "llama-gqa",
            &LLAMA,
            &[],
            &norm,
            &[tied, "attention_bias", "mlp_bias"],
        ),
        of("mistral-window", &LLAMA, &windows, &norm, &[tied]),
        of(
            "qwen2-mixed",
            &LLAMA,
            &windows,
            &norm,
            &[tied, "use_sliding_window"],
        ),
        of(
            "qwen3-bias",
            &LLAMA,
            &windows,
            &norm,
            &[tied, "use_sliding_window", "attention_bias"],
        ),
    ]
}

fn named(name: &str, field: &str, value: &Value) {
    match changed(name, json!({ field: value })) {
        Err(HuggingFaceError::Field {
            field: found,
            value: given,
            ..
        }) => assert_eq!(
            (found, given),
            (field.to_owned(), value.to_string()),
            "{name}"
        ),
        other => panic!("{name}: {field} = {value}: {other:?}"),
    }
}

#[test]
fn sizes() {
    let wrong = json!([
        0, -1, 1.5, 8.0, 16_777_217, 1_u64 << 60, u64::MAX, 1e300, "12", true, [12], {"is": 12}
    ]);
    for (name, sizes, ..) in types() {
        for field in sizes {
            for value in wrong.as_array().unwrap() {
                named(name, field, value);
            }
        }
    }
}

#[test]
fn numbers() {
    for (name, _, numbers, _) in types() {
        for field in numbers {
            for value in json!(["1", true, [1], {}]).as_array().unwrap() {
                named(name, field, value);
            }
            for value in [json!(0), json!(-1)] {
                let error = changed(name, json!({ field: value }))
                    .unwrap_err()
                    .to_string();
                assert!(
                    error.contains(&value.to_string()),
                    "{name}: {field}: {error}"
                );
            }
        }
    }
}

#[test]
fn flags() {
    for (name, _, _, flags) in types() {
        for field in flags {
            for value in json!([1, 0, "true", [true], {}]).as_array().unwrap() {
                named(name, field, value);
            }
        }
    }
}
