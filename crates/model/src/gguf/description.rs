//! A configuration as metadata.

use emberlm_gguf::{Array, GgufHeader, Value};
use serde_json::Map;

use super::architecture::{self, Architecture, Windows};
use super::key_names::{
    ACTIVE_EXPERTS, CONTEXT, DELTA_SIZES, EXPERT_WIDTH, EXPERTS, FEED_FORWARD, HEADS, INNER_SIZE,
    INTERVAL, KEY_LENGTH, KV_HEADS, LAYER_EPSILON, LAYERS, RECURRENT, RMS_EPSILON, SHARED_WIDTH,
    USUAL_INTERVAL, VALUE_LENGTH, VOCABULARY, WIDTH, WINDOW, WINDOW_PATTERN,
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
    delta_nets(config, fields, &mut set);
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
    if let Some(other) = period(&slides, every).filter(|&other| other != every) {
        set(WINDOW_PATTERN, Value::U32(other as u32));
    }
}

/// Finds `n` such that the flags are true for all layers but the last of every `n`: `usual` if it is such a number.
fn period(flags: &[bool], usual: u64) -> Option<u64> {
    let is_period = |every: &u64| {
        let mut layers = flags.iter().zip(1..);
        layers.all(|(&flag, layer): (_, u64)| flag != layer.is_multiple_of(*every))
    };
    let others = 1..=flags.len() as u64 + 1;
    [usual].into_iter().chain(others).find(is_period)
}

/// Writes the sizes of delta nets and the layers that have them.
fn delta_nets(
    config: &TransformerConfig,
    fields: &Map<String, serde_json::Value>,
    set: &mut impl FnMut(&str, Value),
) {
    let Some(nets) = config.delta_nets() else {
        return;
    };
    let size = |field: &str| fields.get(field).and_then(serde_json::Value::as_u64);
    for (key, [field, _]) in DELTA_SIZES {
        if let Some(size) = size(field) {
            set(key, Value::U32(size as u32));
        }
    }
    let [heads, width] = ["linear_num_value_heads", "linear_value_head_dim"].map(size);
    if let (Some(heads), Some(width)) = (heads, width) {
        set(INNER_SIZE, Value::U32((heads * width) as u32));
    }
    let layers = nets.layers(config.n_layers());
    let recurrent = (0..config.n_layers()).map(|layer| layers.binary_search(&layer).is_ok());
    let recurrent: Vec<bool> = recurrent.collect();
    let interval = period(&recurrent, USUAL_INTERVAL).unwrap_or(USUAL_INTERVAL);
    set(INTERVAL, Value::U32(interval as u32));
    set(RECURRENT, Value::Array(Array::Bool(recurrent)));
}
