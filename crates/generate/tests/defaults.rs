//! Settings read from `generation_config.json`, and those that are ignored.

use emberlm_generate::SamplingDefaults;
use serde_json::{Value, json};

fn read(fields: Value) -> (SamplingDefaults, Vec<String>) {
    let (defaults, ignored) = SamplingDefaults::read(fields.as_object().unwrap(), 100);
    (defaults, ignored.iter().map(ToString::to_string).collect())
}

#[test]
fn fields_have_the_names_of_transformers() {
    let (defaults, ignored) = read(json!({
        "bos_token_id": 1,
        "do_sample": true,
        "eos_token_id": [2, 99],
        "max_new_tokens": 64,
        "min_p": null,
        "pad_token_id": 0,
        "repetition_penalty": 1.05,
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 1,
        "transformers_version": "4.51.0",
    }));
    let expected = SamplingDefaults {
        temperature: Some(0.6),
        top_k: Some(20),
        top_p: Some(1.0),
        min_p: None,
        repetition_penalty: Some(1.05),
        max_new_tokens: Some(64),
        ..SamplingDefaults::default()
    };
    assert_eq!((defaults, ignored), (expected, Vec::new()));
    assert_eq!(read(json!({})), (SamplingDefaults::default(), Vec::new()));
}

#[test]
fn do_sample_false_is_greedy() {
    let (defaults, _) = read(json!({ "do_sample": false, "temperature": 0.7, "top_p": 0.9 }));
    assert_eq!(
        (defaults.temperature, defaults.top_p),
        (Some(0.0), Some(0.9))
    );
}

#[test]
fn invalid_values_are_skipped_and_reported() {
    for (field, values) in [
        ("temperature", json!([-0.5, "hot", [1]])),
        ("top_k", json!([-1, 1.5, "all"])),
        ("top_p", json!([0, 1.5, true])),
        ("min_p", json!([-0.1, 2])),
        ("repetition_penalty", json!([0, -1, "x"])),
        ("max_new_tokens", json!([0, -4, 1.5, "many"])),
        ("do_sample", json!([1, "no"])),
        ("eos_token_id", json!([-1, 100, "</s>", [2, 100], [[2]]])),
    ] {
        for value in values.as_array().unwrap() {
            let (defaults, ignored) = read(json!({ field: value }));
            assert_eq!(defaults, SamplingDefaults::default(), "{field} {value}");
            let [message] = &ignored[..] else {
                panic!("{field} {value}: {ignored:?}");
            };
            assert!(message.starts_with(&format!("{field} = ")), "{message}");
            assert!(message.contains(": must be "), "{message}");
        }
    }
}

#[test]
fn user_settings_override_the_model_s() {
    let user = SamplingDefaults {
        temperature: Some(0.1),
        ..SamplingDefaults::default()
    };
    let model = SamplingDefaults {
        temperature: Some(0.6),
        top_k: Some(20),
        ..SamplingDefaults::default()
    };
    let both = user.or(model);
    assert_eq!((both.temperature, both.top_k), (Some(0.1), Some(20)));
}
