//! A configuration as metadata.

use emberlm_gguf::{Array, GgufHeader, Value};
use serde_json::Map;

use super::architecture::{self, Architecture, Windows};
use super::key_names::{
    ACTIVE_EXPERTS, CONTEXT, EXPERT_WIDTH, EXPERTS, FEED_FORWARD, HEADS, KEY_LENGTH, KV_HEADS,
    LAYER_EPSILON, LAYERS, RMS_EPSILON, SHARED_WIDTH, VALUE_LENGTH, VOCABULARY, WIDTH, WINDOW,
    WINDOW_PATTERN,
};
use super::rope;
use crate::config::Norm;
use crate::transformer::checked::TransformerConfig;

/// Adds the keys of a configuration. `fields` are those of its `config.json`. Returns the factors of LLaMA 3's scaling,
/// which are a tensor.
pub(crate) fn write(
    config: &TransformerConfig,
    fields: &Map<String, serde_json::Value>,
    architecture: &Architecture,
    header: &mut GgufHeader,
) -> Option<Vec<f32>> {
    let name = Value::String(architecture.name.to_owned());
    header.insert(architecture::KEY, name);
    let mut set = |key: &str, value: Value| header.insert(architecture.key(key), value);
    let size = |size: usize| Value::U32(u32::try_from(size).unwrap_or(u32::MAX));
    set(VOCABULARY, size(config.vocab_size()));
    set(CONTEXT, size(config.seq_len()));
    set(WIDTH, size(config.d_model()));
    set(LAYERS, size(config.n_layers()));
    set(FEED_FORWARD, size(config.feed_forward_width()));
    set(HEADS, size(config.heads()));
    set(KV_HEADS, size(config.kv_heads()));
    if config.rotary().is_some() {
        set(KEY_LENGTH, size(config.head_dim()));
        set(VALUE_LENGTH, size(config.head_dim()));
    }
    let epsilon = match config.norm() {
        Norm::Layer { .. } => LAYER_EPSILON,
        Norm::Rms { .. } | Norm::OffsetRms { .. } | Norm::UnitRms { .. } => RMS_EPSILON,
    };
    set(epsilon, Value::F32(config.norm_epsilon() as f32));
    if let Some(experts) = config.experts() {
        set(EXPERTS, size(experts.count));
        set(ACTIVE_EXPERTS, size(experts.active));
        if let Some(width) = experts.width.filter(|_| architecture.expert_width) {
            set(EXPERT_WIDTH, size(width));
        }
        if let Some(width) = experts.shared_width {
            set(SHARED_WIDTH, size(width));
        }
    }
    windows(config, architecture, &mut set);
    for (key, field) in architecture.factors.iter().chain(architecture.caps) {
        if let Some(number) = fields.get(*field).and_then(serde_json::Value::as_f64) {
            set(key, Value::F32(number as f32));
        }
    }
    if let Some(further) = architecture.further {
        let (key, value) = further(config);
        set(key, value);
    }
    rope::write(config, architecture, &mut set)
}

/// Writes the window and the layers that have it, as far as the architecture records them.
fn windows(
    config: &TransformerConfig,
    architecture: &Architecture,
    set: &mut impl FnMut(&str, Value),
) {
    let Some(window) = config.window() else {
        return;
    };
    let every = match architecture.windows {
        Windows::Unrecorded => return,
        Windows::AllLayers => None,
        Windows::Every(every) | Windows::Listed(every) => Some(every),
    };
    set(WINDOW, Value::U32(window.tokens as u32));
    let Some(every) = every else {
        return;
    };
    let layers = config.n_layers();
    let slides: Vec<bool> = (0..layers)
        .map(|layer| config.window_of(layer).is_some())
        .collect();
    if matches!(architecture.windows, Windows::Listed(_)) {
        set(WINDOW_PATTERN, Value::Array(Array::Bool(slides)));
        return;
    }
    // A whole number, which all readers of this key support, if there is one for these layers.
    let is_period = |every: &u64| {
        let mut layers = slides.iter().zip(1..);
        layers.all(|(&slides, layer): (_, u64)| slides != layer.is_multiple_of(*every))
    };
    if !is_period(&every)
        && let Some(other) = (1..=layers as u64 + 1).find(is_period)
    {
        set(WINDOW_PATTERN, Value::U32(other as u32));
    }
}
