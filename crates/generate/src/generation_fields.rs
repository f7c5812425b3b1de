//! The fields of a `generation_config.json`, and the warnings about those that are ignored and could change a result.

use emberlm_system::fields::{FieldTable, Treatment};
use serde_json::{Map, Value};

use crate::settings::SETTINGS;

use Treatment::{NoEffect, Only, Read};

/// A setting that is not supported, and its default in `transformers`.
const fn only(value: &'static str, rule: &'static str) -> Treatment {
    Only { value, rule }
}

const BEAMS: &str = "one text is generated, and beams are an option of the command";
const LOGITS: &str = "this change of logits is not supported";
const LENGTH: &str = "only max_new_tokens bounds the length";
const FORCED: &str = "tokens are not forced";
const TRUNCATION: &str = "this truncation is not supported: top_k, top_p and min_p are";

/// Returns true for a sampling setting that is read. A row of [`FIELDS`] would have no effect.
fn is_setting(name: &str) -> bool {
    let mut settings = SETTINGS.iter();
    settings.any(|setting| setting.is_of_models && setting.name == name)
}

/// The fields of `GenerationConfig` in `transformers` that are not sampling settings here.
const FIELDS: FieldTable = FieldTable(&[
    ("max_new_tokens", Read),
    ("do_sample", Read),
    ("eos_token_id", Read),
    ("max_length", Read),
    // Length.
    ("min_length", only("0", LENGTH)),
    ("min_new_tokens", only("0", LENGTH)),
    ("max_time", only("null", LENGTH)),
    (
        "stop_strings",
        only("null", "only eos_token_id ends a text"),
    ),
    // Beams and other searches.
    ("num_beams", only("1", BEAMS)),
    ("num_beam_groups", only("1", BEAMS)),
    ("num_return_sequences", only("1", BEAMS)),
    (
        "assistant_ensemble_weight",
        only("null", "a draft model does not change the distribution"),
    ),
    ("constraints", only("null", BEAMS)),
    ("force_words_ids", only("null", BEAMS)),
    ("early_stopping", NoEffect),
    ("length_penalty", NoEffect),
    ("diversity_penalty", NoEffect),
    (
        "penalty_alpha",
        only("0.0", "contrastive search is not supported"),
    ),
    (
        "dola_layers",
        only("null", "contrasting layers is not supported"),
    ),
    // Logits.
    ("typical_p", only("1.0", TRUNCATION)),
    ("epsilon_cutoff", only("0.0", TRUNCATION)),
    ("eta_cutoff", only("0.0", TRUNCATION)),
    ("top_h", only("null", TRUNCATION)),
    ("p_less", only("false", TRUNCATION)),
    ("encoder_repetition_penalty", only("1.0", LOGITS)),
    ("no_repeat_ngram_size", only("0", LOGITS)),
    ("encoder_no_repeat_ngram_size", only("0", LOGITS)),
    ("bad_words_ids", only("null", LOGITS)),
    ("suppress_tokens", only("null", LOGITS)),
    ("begin_suppress_tokens", only("null", LOGITS)),
    ("sequence_bias", only("null", LOGITS)),
    ("exponential_decay_length_penalty", only("null", LOGITS)),
    ("guidance_scale", only("1.0", LOGITS)),
    ("watermarking_config", only("null", LOGITS)),
    (
        "token_healing",
        only("false", "the end of a prompt is kept as it is"),
    ),
    ("forced_bos_token_id", only("null", FORCED)),
    ("forced_eos_token_id", only("null", FORCED)),
    ("forced_decoder_ids", only("null", FORCED)),
    // Normalization after truncation, and the repair of NaN, which ends a generation here.
    ("renormalize_logits", NoEffect),
    ("remove_invalid_values", NoEffect),
    // Special tokens, which the model and its tokenizer have.
    ("bos_token_id", NoEffect),
    ("pad_token_id", NoEffect),
    ("decoder_start_token_id", NoEffect),
    // How texts are computed, with the same result.
    ("assistant_confidence_threshold", NoEffect),
    ("assistant_early_exit", NoEffect),
    ("assistant_ephemeral", NoEffect),
    ("assistant_lookbehind", NoEffect),
    ("cache_config", NoEffect),
    ("cache_implementation", NoEffect),
    ("compile_config", NoEffect),
    ("continuous_batching_config", NoEffect),
    ("disable_compile", NoEffect),
    ("is_assistant", NoEffect),
    ("low_memory", NoEffect),
    ("max_cache_len", NoEffect),
    ("max_matching_ngram_size", NoEffect),
    ("num_assistant_tokens", NoEffect),
    ("num_assistant_tokens_schedule", NoEffect),
    ("prefill_chunk_size", NoEffect),
    ("prompt_lookup_num_tokens", NoEffect),
    ("speculation_type", NoEffect),
    ("target_lookbehind", NoEffect),
    ("use_cache", NoEffect),
    ("use_mtp", NoEffect),
    // The form of results in Python, and the origin of the file.
    ("_from_model_config", NoEffect),
    ("output_attentions", NoEffect),
    ("output_hidden_states", NoEffect),
    ("output_logits", NoEffect),
    ("output_scores", NoEffect),
    ("return_dict_in_generate", NoEffect),
    ("return_legacy_cache", NoEffect),
    ("transformers_version", NoEffect),
    ("trust_remote_code", NoEffect),
]);

/// Describes the fields of a `generation_config.json` that are ignored and could change a result. `context` is the
/// longest text of the model in tokens, if it has a limit.
pub fn ignored_fields(fields: &Map<String, Value>, context: Option<usize>) -> Vec<String> {
    let unread = FIELDS.unread(fields);
    let unread = unread.filter(|found| !is_setting(&found.field));
    let mut ignored: Vec<String> = unread
        .map(|found| {
            let rule = found.rule.unwrap_or("`transformers` has no such setting");
            format!("{} = {}: {rule}", found.field, found.value)
        })
        .collect();
    // The length of prompt and answer together; 20 is the default.
    let longest = fields.get("max_length").and_then(Value::as_u64);
    if let Some(longest) = longest
        && longest != 20
        && context.is_none_or(|context| longest < context as u64)
        && fields.get("max_new_tokens").is_none_or(Value::is_null)
    {
        ignored.push(format!("max_length = {longest}: {LENGTH}"));
    }
    ignored
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ignored(fields: Value) -> Vec<String> {
        let fields = fields.as_object().cloned().unwrap_or_default();
        let names = ignored_fields(&fields, Some(64)).into_iter();
        names
            .map(|line| line.split(" = ").next().unwrap_or_default().to_owned())
            .collect()
    }

    /// `make_generation_fields.py` lists them with `transformers`.
    #[test]
    fn every_setting_of_transformers_is_in_the_table() {
        let listed = include_str!("../tests/fixtures/generation_fields.json");
        let listed: Value = serde_json::from_str(listed).unwrap();
        let defaults = listed["fields"].as_object().unwrap();
        for name in defaults.keys() {
            let is_known = is_setting(name) || FIELDS.treatment(name).is_some();
            assert!(is_known, "{name}");
        }
        assert_eq!(ignored(json!(defaults)), Vec::<String>::new(), "defaults");
    }

    #[test]
    fn settings_that_change_texts_are_reported() {
        for (name, values) in [
            ("min_length", json!([5])),
            ("min_new_tokens", json!([1])),
            ("num_beams", json!([4])),
            ("typical_p", json!([0.9])),
            ("epsilon_cutoff", json!([0.001])),
            ("no_repeat_ngram_size", json!([3])),
            ("bad_words_ids", json!([[[1]]])),
            ("suppress_tokens", json!([[1, 2]])),
            ("begin_suppress_tokens", json!([[7]])),
            ("forced_bos_token_id", json!([0, 5])),
            ("forced_eos_token_id", json!([2])),
            ("exponential_decay_length_penalty", json!([[3, 1.1]])),
            ("guidance_scale", json!([1.5])),
            ("stop_strings", json!([["\n"], "end"])),
            ("max_length", json!([30, 63])),
            ("tempreature", json!([0.5])),
        ] {
            for value in values.as_array().unwrap() {
                assert_eq!(ignored(json!({ name: value })), [name], "{name} = {value}");
            }
        }
    }

    #[test]
    fn defaults_and_other_settings_are_not_reported() {
        let harmless = json!({
            "bad_words_ids": null, "suppress_tokens": [], "min_length": 0, "num_beams": 1, "typical_p": 1,
            "max_length": 64, "length_penalty": 0.8, "use_cache": false, "transformers_version": "5.0", "temperature": 0.5,
        });
        assert_eq!(ignored(harmless), Vec::<String>::new());
        let shorter = json!({"max_length": 30, "max_new_tokens": 5});
        assert_eq!(ignored(shorter), Vec::<String>::new());
    }
}
