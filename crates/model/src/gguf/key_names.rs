//! Names of the keys that are both read and written, without the architecture before them.

use std::path::Path;

use crate::error::HuggingFaceError;

pub(super) const CONTEXT: &str = "context_length";
pub(super) const WIDTH: &str = "embedding_length";
pub(super) const LAYERS: &str = "block_count";
pub(super) const FEED_FORWARD: &str = "feed_forward_length";
pub(super) const HEADS: &str = "attention.head_count";
pub(super) const KV_HEADS: &str = "attention.head_count_kv";
pub(super) const KEY_LENGTH: &str = "attention.key_length";
/// Factor on scores.
pub(super) const ATTENTION_SCALE: &str = "attention.scale";
pub(super) const VALUE_LENGTH: &str = "attention.value_length";
/// Epsilon of RMSNorms.
pub(super) const RMS_EPSILON: &str = "attention.layer_norm_rms_epsilon";
/// Epsilon of LayerNorms.
pub(super) const LAYER_EPSILON: &str = "attention.layer_norm_epsilon";
pub(super) const WINDOW: &str = "attention.sliding_window";
pub(super) const WINDOW_PATTERN: &str = "attention.sliding_window_pattern";
pub(super) const VOCABULARY: &str = "vocab_size";

pub(super) const EXPERTS: &str = "expert_count";
pub(super) const ACTIVE_EXPERTS: &str = "expert_used_count";
pub(super) const EXPERT_WIDTH: &str = "expert_feed_forward_length";
pub(super) const SHARED_WIDTH: &str = "expert_shared_feed_forward_length";

pub(super) const PREDICTIONS: &str = "nextn_predict_layers";

/// Sizes of delta nets: the key of each, its field in `config.json`, and that in a model's configuration.
pub(super) const DELTA_SIZES: [(&str, [&str; 2]); 4] = [
    (
        "ssm.conv_kernel",
        ["linear_conv_kernel_dim", "delta_nets.taps"],
    ),
    (STATE_SIZE, ["linear_key_head_dim", "delta_nets.key_dim"]),
    (
        "ssm.group_count",
        ["linear_num_key_heads", "delta_nets.key_heads"],
    ),
    (
        VALUE_HEADS,
        ["linear_num_value_heads", "delta_nets.value_heads"],
    ),
];
/// Width of a head of queries, keys or values.
pub(super) const STATE_SIZE: &str = "ssm.state_size";
pub(super) const VALUE_HEADS: &str = "ssm.time_step_rank";
/// Width of all heads of values.
pub(super) const INNER_SIZE: &str = "ssm.inner_size";
/// The layers with delta nets.
pub(super) const RECURRENT: &str = "attention.recurrent_layers";
/// The distance of the layers without delta nets where [`RECURRENT`] is not given.
pub(super) const INTERVAL: &str = "full_attention_interval";
/// The value of [`INTERVAL`] where it is not given.
pub(super) const USUAL_INTERVAL: u64 = 4;

pub(super) const PARALLEL: &str = "use_parallel_residual";
pub(super) const LAYOUT: &str = "tensor_data_layout";
/// The only value of [`LAYOUT`].
pub(super) const LAYOUT_NAME: &str = "jploski";

pub(super) const ROPE_BASE: &str = "rope.freq_base";
/// Base of layers with a window.
pub(super) const ROPE_WINDOW_BASE: &str = "rope.freq_base_swa";
pub(super) const ROPE_DIMS: &str = "rope.dimension_count";
/// The pairs of elements that rotate by each of four positions, of which text has three equal ones.
pub(super) const ROPE_SECTIONS: &str = "rope.dimension_sections";
pub(super) const ROPE_SCALING: &str = "rope.scaling.type";
pub(super) const ROPE_FACTOR: &str = "rope.scaling.factor";
pub(super) const ROPE_ORIGINAL: &str = "rope.scaling.original_context_length";
pub(super) const YARN_FAST: &str = "rope.scaling.yarn_beta_fast";
pub(super) const YARN_SLOW: &str = "rope.scaling.yarn_beta_slow";
pub(super) const YARN_ATTENTION: &str = "rope.scaling.yarn_attn_factor";

/// The key that a field of `config.json`, or of a model's configuration, is made of.
fn key_of(field: &str) -> Option<&'static str> {
    const KEYS: [(&[&str], &str); 15] = [
        (
            &[
                "max_position_embeddings",
                "n_positions",
                "seq_length",
                "seq_len",
            ],
            CONTEXT,
        ),
        (&["hidden_size", "n_embd", "d_model"], WIDTH),
        (&["num_hidden_layers", "n_layer", "n_layers"], LAYERS),
        (&["num_attention_heads", "n_head", "heads"], HEADS),
        (
            &["num_key_value_heads", "num_kv_heads", "kv_heads"],
            KV_HEADS,
        ),
        (
            &[
                "intermediate_size",
                "n_inner",
                "ffn_hidden_size",
                "feed_forward.width",
            ],
            FEED_FORWARD,
        ),
        (&["head_dim"], KEY_LENGTH),
        (&["rms_norm_eps"], RMS_EPSILON),
        (
            &["layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"],
            LAYER_EPSILON,
        ),
        (&["sliding_window"], WINDOW),
        (&["layer_types"], WINDOW_PATTERN),
        (&["num_local_experts", "num_experts"], EXPERTS),
        (&["num_experts_per_tok"], ACTIVE_EXPERTS),
        (&["rope_parameters.rope_theta", "position.base"], ROPE_BASE),
        (
            &["rope_parameters.partial_rotary_factor", "position.dims"],
            ROPE_DIMS,
        ),
    ];
    let found = KEYS.iter().find(|(fields, _)| fields.contains(&field));
    let size = DELTA_SIZES
        .iter()
        .find(|(_, fields)| fields.contains(&field));
    found.map(|(_, key)| *key).or(size.map(|(key, _)| *key))
}

/// The error of a `config.json`, about the metadata of the GGUF file at `path` from which its fields were made.
pub(crate) fn of_metadata(error: HuggingFaceError, path: &Path) -> HuggingFaceError {
    let (field, value, rule) = match error {
        HuggingFaceError::Field { field, value, rule } => (field, value, rule),
        HuggingFaceError::Config(error) => (error.field.into_owned(), error.value, error.rule),
        other => return other,
    };
    let name = key_of(&field).unwrap_or(&field);
    let reason = format!("`{name}` = {value}: {rule}");
    HuggingFaceError::GgufModel {
        path: path.to_owned(),
        reason,
    }
}
