//! Fields of `config.json` that do not change a result, and the warnings about all others that are not read.

use emberlm_system::fields::{FieldTable, Treatment, Unread};

use super::fields::Fields;

use Treatment::{NoEffect, Only};

/// A setting of generation, which `transformers` used from this file before there was a `generation_config.json`.
const fn generation(default: &'static str) -> Treatment {
    Only {
        value: default,
        rule: "settings of generation are read from generation_config.json",
    }
}

/// Fields that no model type reads.
const UNREAD: FieldTable = FieldTable(&[
    // Origin and form of the files.
    ("_name_or_path", NoEffect),
    ("_commit_hash", NoEffect),
    ("_attn_implementation", NoEffect),
    ("_attn_implementation_autoset", NoEffect),
    ("_experts_implementation", NoEffect),
    ("_flash_attn_2_enabled", NoEffect),
    ("architectures", NoEffect),
    ("attn_implementation", NoEffect),
    ("auto_map", NoEffect),
    ("dtype", NoEffect),
    ("experts_implementation", NoEffect),
    ("finetuning_task", NoEffect),
    ("model_type", NoEffect),
    ("torch_dtype", NoEffect),
    ("transformers_version", NoEffect),
    ("transformers.js_config", NoEffect),
    ("unsloth_fixed", NoEffect),
    ("unsloth_version", NoEffect),
    ("use_bfloat16", NoEffect),
    ("torchscript", NoEffect),
    // Copies of other fields, in gpt-oss.
    ("experts_per_token", NoEffect),
    ("initial_context_length", NoEffect),
    // The form of results in Python, and how they are computed.
    ("cache_implementation", NoEffect),
    ("chunk_size_feed_forward", NoEffect),
    ("deterministic_flash_attn", NoEffect),
    ("gradient_checkpointing", NoEffect),
    ("is_decoder", NoEffect),
    ("is_encoder_decoder", NoEffect),
    ("output_attentions", NoEffect),
    ("output_hidden_states", NoEffect),
    ("output_past", NoEffect),
    ("output_router_logits", NoEffect),
    ("pretraining_tp", NoEffect),
    // The sum of two fields.
    ("qk_head_dim", NoEffect),
    // Blocks that are not read, and settings of training and of ranks (DeepSeek).
    ("num_nextn_predict_layers", NoEffect),
    ("num_mtp_layers", NoEffect),
    ("aux_loss_alpha", NoEffect),
    ("seq_aux", NoEffect),
    ("ep_size", NoEffect),
    (
        "moe_layer_freq",
        Only {
            value: "1",
            rule: "every layer after the first ones has experts",
        },
    ),
    ("reference_compile", NoEffect),
    ("reorder_and_upcast_attn", NoEffect),
    ("repad_logits_with_grad", NoEffect),
    ("return_dict", NoEffect),
    ("return_dict_in_generate", NoEffect),
    ("scale_attention_softmax_in_fp32", NoEffect),
    ("slow_but_exact", NoEffect),
    ("use_cache", NoEffect),
    ("use_return_dict", NoEffect),
    // Training.
    ("attention_dropout", NoEffect),
    ("attention_probs_dropout_prob", NoEffect),
    ("attn_pdrop", NoEffect),
    ("classifier_dropout", NoEffect),
    ("classifier_dropout_prob", NoEffect),
    ("dropout", NoEffect),
    ("embd_pdrop", NoEffect),
    ("embedding_dropout", NoEffect),
    ("hidden_dropout", NoEffect),
    ("hidden_dropout_prob", NoEffect),
    ("initializer_cutoff_factor", NoEffect),
    ("initializer_factor", NoEffect),
    ("initializer_range", NoEffect),
    ("mlp_dropout", NoEffect),
    ("qa_dropout", NoEffect),
    ("resid_pdrop", NoEffect),
    ("residual_dropout", NoEffect),
    ("router_aux_loss_coef", NoEffect),
    ("seq_classif_dropout", NoEffect),
    ("sinusoidal_pos_embds", NoEffect),
    ("sparse_pred_ignore_index", NoEffect),
    ("sparse_prediction", NoEffect),
    // Heads of other kinds.
    (
        "problem_type",
        Only {
            value: "\"single_label_classification\"",
            rule: "labels exclude each other, so that their probabilities add up to 1",
        },
    ),
    ("id2label", NoEffect),
    ("label2id", NoEffect),
    ("num_labels", NoEffect),
    ("summary_activation", NoEffect),
    ("summary_first_dropout", NoEffect),
    ("summary_proj_to_labels", NoEffect),
    ("summary_type", NoEffect),
    ("summary_use_proj", NoEffect),
    ("task_specific_params", NoEffect),
    // Fields that are read only where others make use of them.
    ("hidden_act", NoEffect),
    // The tensors show it.
    ("is_gated_act", NoEffect),
    ("layer_types", NoEffect),
    ("full_attention_interval", NoEffect),
    ("global_rope_theta", NoEffect),
    ("local_rope_theta", NoEffect),
    ("max_window_layers", NoEffect),
    ("no_rope_layer_interval", NoEffect),
    ("num_kv_heads", NoEffect),
    ("original_max_position_embeddings", NoEffect),
    ("partial_rotary_factor", NoEffect),
    ("rope_local_base_freq", NoEffect),
    ("rope_parameters", NoEffect),
    ("rope_theta", NoEffect),
    ("rotary_emb_base", NoEffect),
    ("rotary_pct", NoEffect),
    ("sliding_window", NoEffect),
    ("sliding_window_pattern", NoEffect),
    ("_sliding_window_pattern", NoEffect),
    ("tie_encoder_decoder", NoEffect),
    ("tie_word_embeddings", NoEffect),
    ("use_sliding_window", NoEffect),
    // Special tokens, which the tokenizer and generation_config.json have.
    ("bos_token_id", NoEffect),
    ("cls_token_id", NoEffect),
    ("decoder_start_token_id", NoEffect),
    ("eos_token_id", NoEffect),
    ("pad_token_id", NoEffect),
    ("sep_token_id", NoEffect),
    ("tokenizer_class", NoEffect),
    ("prefix", NoEffect),
    // Settings of generation.
    ("bad_words_ids", generation("null")),
    ("begin_suppress_tokens", generation("null")),
    ("diversity_penalty", generation("0.0")),
    ("do_sample", generation("false")),
    ("early_stopping", generation("false")),
    ("encoder_no_repeat_ngram_size", generation("0")),
    ("exponential_decay_length_penalty", generation("null")),
    ("forced_bos_token_id", generation("null")),
    ("forced_eos_token_id", generation("null")),
    ("length_penalty", generation("1.0")),
    ("max_length", generation("20")),
    ("min_length", generation("0")),
    ("no_repeat_ngram_size", generation("0")),
    ("num_beam_groups", generation("1")),
    ("num_beams", generation("1")),
    ("num_return_sequences", generation("1")),
    ("output_scores", NoEffect),
    ("remove_invalid_values", NoEffect),
    ("repetition_penalty", generation("1.0")),
    ("suppress_tokens", generation("null")),
    ("temperature", generation("1.0")),
    ("top_k", generation("50")),
    ("top_p", generation("1.0")),
    ("typical_p", generation("1.0")),
]);

/// Fields in published models that `transformers` does not read for the types that have them.
const LEFT_OVER: [&str; 30] = [
    "activation_function",
    "attention_softmax_in_fp32",
    "bias_dropout_fusion",
    "directionality",
    "embd_pdrop",
    "is_llama_config",
    "layer_norm_eps",
    "masked_softmax_fusion",
    "max_sequence_length",
    "mlp_type",
    "model_max_length",
    "n_ctx",
    "n_positions",
    "norm_type",
    "offset_alibi",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
    "position_embedding_type",
    "rope_interleaved",
    "rotary",
    "scale_attn_weights",
    "seq_length",
    "skip_bias_add",
    "skip_bias_add_qkv",
    "tie_weights_",
    "unk_token_id",
    "use_mrope",
];

/// Settings of rotary positions that not every kind of scaling reads, or that concern the positions of images.
const ROPE: [&str; 20] = [
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "factor",
    "finetuned",
    "high_freq_factor",
    "long_factor",
    "long_mscale",
    "low_freq_factor",
    "mrope_interleaved",
    "mrope_section",
    "mscale",
    "mscale_all_dim",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "rope_theta",
    "short_factor",
    "short_mscale",
    "truncate",
    "type",
];

/// Warnings about fields that were not read and may have an effect. `transformers` ignores those that its
/// type does not have.
pub(crate) fn warnings(fields: &Fields<'_>) -> Vec<String> {
    let mut unread = fields.unread();
    unread.retain(|name, _| match name.split_once('.') {
        Some(("rope_parameters" | "rope_scaling", setting)) => !ROPE.contains(&setting),
        _ => true,
    });
    unread.retain(|name, _| !LEFT_OVER.contains(&name.as_str()));
    let warning = |found: Unread| {
        let reason = "no model of this type has such a setting";
        format!("config.json: {}", found.warning(reason))
    };
    UNREAD.unread(&unread).map(warning).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::exchange::FileFacts;
    use crate::hugging_face;

    /// The fields of every model type with their defaults in `transformers`: `make_config_fields.py` lists them.
    fn defaults() -> Map<String, Value> {
        let listed = include_str!("../../tests/fixtures/config_fields.json");
        let listed: Value = serde_json::from_str(listed).unwrap();
        listed["types"].as_object().unwrap().clone()
    }

    /// The warnings about a configuration, and the fields that are neither read nor listed.
    fn judged(fields: &Map<String, Value>) -> (Vec<String>, Vec<String>) {
        let read = Fields::new(fields);
        hugging_face::read_described(&read, FileFacts::default())
            .unwrap_or_else(|error| panic!("{}: {error}", fields["model_type"]));
        let unread = read.unread();
        let unknown = unread
            .keys()
            .filter(|name| UNREAD.treatment(name).is_none());
        (warnings(&read), unknown.cloned().collect())
    }

    #[test]
    fn every_field_of_transformers_is_read_or_listed() {
        for (model_type, mut fields) in defaults() {
            let fields = fields.as_object_mut().unwrap();
            for list in ["layer_types", "no_rope_layers", "mlp_layer_types"] {
                if let Some(value) = fields.get_mut(list) {
                    *value = Value::Null;
                }
            }
            assert_eq!(judged(fields), (Vec::new(), Vec::new()), "{model_type}");
        }
    }

    #[test]
    fn other_fields_and_settings_of_generation_are_reported() {
        let mut fields = defaults()["llama"].as_object().unwrap().clone();
        fields.extend(
            json!({"qk_norm": true, "no_repeat_ngram_size": 3, "off": false, "rope_scaling": null})
                .as_object()
                .unwrap()
                .clone(),
        );
        fields["rope_parameters"]["low_freq"] = json!(2);
        let (mut found, _) = judged(&fields);
        found.sort();
        let expected = [
            "config.json: `no_repeat_ngram_size` = 3 is ignored: settings of generation are read from generation_config.json",
            "config.json: `qk_norm` = true is ignored: no model of this type has such a setting",
            "config.json: `rope_parameters.low_freq` = 2 is ignored: no model of this type has such a setting",
        ];
        assert_eq!(found, expected);
    }
}
