//! Reads model configurations that earlier versions wrote.
//!
//! Before version 1 of the model section, 0 meant "not set", and three keys of the model itself described the window.
//! The same keys are accepted on the command line (`--set model.window=8`).
//!
//! | earlier key | current equivalent |
//! |---|---|
//! | `window = 8` | `attention.window.tokens = 8` |
//! | `window = 0` | no `attention.window` |
//! | `full_attention_layers = [1]` | `attention.window.full_layers = [1]` |
//! | `global_tokens = 2` | `attention.window.global_tokens = 2` |
//! | 0 for `vocab_size`, `kv_heads`, `head_dim`, `feed_forward.width`, `feed_forward.expansion`, `position.dims`, `attention.features`, `head.soft_cap` | the key is absent |
//!
//! `attention.window = 8` is a shorthand for `attention.window.tokens = 8`; `attention.window = 0` removes the window.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Keys of the model and of its tables whose zero means "not set".
const UNSET_BY_ZERO: [(Option<&str>, &str); 9] = [
    (None, "vocab_size"),
    (None, "kv_heads"),
    (None, "head_dim"),
    (None, "experts"),
    (Some("feed_forward"), "width"),
    (Some("feed_forward"), "expansion"),
    (Some("position"), "dims"),
    (Some("attention"), "features"),
    (Some("head"), "soft_cap"),
];

/// Rewrites the keys and values of earlier versions in the current format.
///
/// # Errors
/// A combination that was never valid, or a value of the wrong type.
pub(super) fn upgrade(fields: &mut Map<String, Value>) -> Result<(), String> {
    for (table, key) in UNSET_BY_ZERO {
        let table = match table {
            None => Some(&mut *fields),
            Some(table) => fields.get_mut(table).and_then(Value::as_object_mut),
        };
        if let Some(table) = table
            && table.get(key).and_then(Value::as_f64) == Some(0.0)
        {
            table.remove(key);
        }
    }
    upgrade_window(fields)
}

fn upgrade_window(fields: &mut Map<String, Value>) -> Result<(), String> {
    let tokens: Option<usize> = take(fields, "window")?;
    let full_layers: Option<Vec<usize>> = take(fields, "full_attention_layers")?;
    let global_tokens: Option<usize> = take(fields, "global_tokens")?;
    let has_legacy_keys = tokens.is_some() || full_layers.is_some() || global_tokens.is_some();
    let attention = match has_legacy_keys {
        true => fields
            .entry("attention")
            .or_insert_with(|| json!({"kind": "softmax"})),
        false => match fields.get_mut("attention") {
            Some(attention) => attention,
            None => return Ok(()),
        },
    };
    let Some(attention) = attention.as_object_mut() else {
        return Ok(());
    };
    if attention.get("kind").and_then(Value::as_str) != Some("softmax") {
        return match tokens.unwrap_or(0) + global_tokens.unwrap_or(0) {
            0 => Ok(()),
            _ => Err(
                "model.window: must be 0 with linear attention, whose sums cannot remove a token"
                    .to_owned(),
            ),
        };
    }
    let shorthand = attention.get("window").and_then(Value::as_u64);
    if let Some(tokens) = shorthand {
        attention.remove("window");
        set_tokens(attention, tokens as usize);
    }
    if let Some(tokens) = tokens {
        set_tokens(attention, tokens);
    }
    let mut window = attention.get_mut("window").and_then(Value::as_object_mut);
    if let (Some(layers), Some(window)) = (full_layers, &mut window) {
        window.insert("full_layers".to_owned(), json!(layers));
    }
    match (global_tokens, &mut window) {
        (Some(count), Some(window)) => {
            window.insert("global_tokens".to_owned(), json!(count));
        }
        (Some(count @ 1..), None) => {
            return Err(format!(
                "model.global_tokens = {count}: must be 0 without a window: every token is attended to"
            ));
        }
        _ => {}
    }
    Ok(())
}

/// Sets the window's length; 0 removes the window. Its other keys are kept.
fn set_tokens(attention: &mut Map<String, Value>, tokens: usize) {
    if tokens == 0 {
        attention.remove("window");
        return;
    }
    let window = attention
        .entry("window")
        .or_insert_with(|| Value::Object(Map::new()));
    if let Some(window) = window.as_object_mut() {
        window.insert("tokens".to_owned(), json!(tokens));
    }
}

fn take<T: DeserializeOwned>(
    fields: &mut Map<String, Value>,
    key: &str,
) -> Result<Option<T>, String> {
    match fields.remove(key) {
        None => Ok(None),
        Some(value) => serde_json::from_value(value)
            .map(Some)
            .map_err(|error| format!("model.{key}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AttentionKind, FullLayers, ModelConfig, Window};
    use crate::families;
    use serde_json::{Value, json};

    fn read(preset: &str, changes: Value) -> Result<ModelConfig, String> {
        let config = families::preset(preset).expect("a preset").config;
        let mut fields = serde_json::to_value(config).expect("JSON");
        for (key, value) in changes.as_object().expect("an object") {
            fields[key] = value.clone();
        }
        serde_json::from_value(fields).map_err(|error| error.to_string())
    }

    fn window(preset: &str, changes: Value) -> Option<Window> {
        match read(preset, changes).expect("legal").attention {
            AttentionKind::Softmax { window, .. } => window,
            AttentionKind::Linear { .. } => None,
        }
    }

    #[test]
    fn keys_of_earlier_versions_describe_a_window() {
        let eight = Window::new(8);
        assert_eq!(
            window("char-nano", json!({"window": 8})),
            Some(eight.clone())
        );
        let all = json!({"window": 8, "full_attention_layers": [1], "global_tokens": 2});
        let expected = Window {
            tokens: 8,
            global_tokens: 2,
            full_layers: FullLayers::Listed(vec![1]),
        };
        assert_eq!(window("char-nano", all), Some(expected));
        // On a preset that has a window.
        assert_eq!(window("mistral-7b", json!({"window": 0})), None);
        let changed = window("mistral-7b", json!({"window": 5})).expect("a window");
        assert_eq!(changed.tokens, 5);
        let without = json!({"window": 0, "full_attention_layers": [], "global_tokens": 0});
        assert_eq!(window("char-nano", without), None);
        let short = json!({"attention": {"kind": "softmax", "window": 8}});
        assert_eq!(window("char-nano", short), Some(eight));
    }

    #[test]
    fn zeros_of_earlier_versions_are_absent_keys() {
        let zeros = json!({"vocab_size": 0, "head_dim": 0,
            "feed_forward": {"kind": "dense", "activation": "gelu", "width": 0},
            "position": {"kind": "rotary", "dims": 0, "base": 1e4, "layout": "half_split"},
            "head": {"tied": true, "bias": false, "soft_cap": 0.0},
            "attention": {"kind": "linear", "features": 0, "seed": 3}});
        let config = read("char-nano", zeros).expect("legal");
        assert_eq!((config.vocab_size, config.head_dim), (None, None));
        assert_eq!(config.feed_forward.width, None);
        assert_eq!(config.head.soft_cap, None);
        let linear = AttentionKind::Linear {
            features: None,
            seed: 3,
        };
        assert_eq!(config.attention, linear);
    }

    #[test]
    fn illegal_combinations_are_rejected() {
        let error = |changes| read("char-nano", changes).expect_err("illegal");
        let global = error(json!({"global_tokens": 2}));
        let expected =
            "model.global_tokens = 2: must be 0 without a window: every token is attended to";
        assert_eq!(global, expected);
        let linear = error(json!({"window": 8, "attention": {"kind": "linear"}}));
        assert!(linear.starts_with("model.window: must be 0 with linear attention"));
        let linear = error(json!({"attention": {"kind": "linear", "window": {"tokens": 8}}}));
        assert!(linear.contains("unknown field `window`"), "{linear}");
        let text = error(json!({"window": "wide"}));
        assert!(text.starts_with("model.window: "), "{text}");
    }
}
