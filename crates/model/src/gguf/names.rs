//! Tensor names of GGUF files.
//!
//! All architectures have the same names, with the exceptions below. Linear layers are stored `[out, in]`, fused
//! queries, keys and values in this order.

use emberlm_gguf::GgufFile;

use super::architecture::Architecture;
use super::{EMBEDDING, HEAD};
use crate::config::Wiring;
use crate::nn::attention::AttentionConfig;
use crate::transformer::checked::TransformerConfig;
use crate::weights::map::Source;
use crate::weights::names::{
    Names, TensorName, as_is, expert_of, gate_beside_queries, linear, paired_query_key_value,
    part_of, per_head, per_head_of_key, query_key_value, query_key_value_beside_gate,
};
use crate::weights::pieces::Pieces;

/// The tables of the tensors of a block that apply to a file.
pub(crate) struct GgufNames {
    blocks: Vec<&'static [TensorName]>,
}

impl GgufNames {
    /// The names in a file. Files of one architecture differ in whether projections are fused.
    pub(crate) fn of(architecture: &Architecture, file: &GgufFile) -> Self {
        let has = |name: &str| file.tensor(name).is_some();
        let projections = match architecture.paired_rows {
            _ if has("blk.0.attn_qkv.weight") => FUSED,
            true => PAIRED,
            false => SEPARATE,
        };
        let experts = match has("blk.0.ffn_gate.0.weight") {
            true => SPLIT_EXPERTS,
            false => EXPERTS,
        };
        Self {
            blocks: [architecture.names, &[projections, experts, BLOCK]].concat(),
        }
    }

    /// The names in a file that is written.
    pub(crate) fn written(architecture: &Architecture) -> Self {
        let projections = match (architecture.fused, architecture.paired_rows) {
            (true, _) => FUSED,
            (false, true) => PAIRED,
            (false, false) => SEPARATE,
        };
        Self {
            blocks: [architecture.names, &[projections, EXPERTS, BLOCK]].concat(),
        }
    }

    /// Returns the source of the parameter at `path`; `None` if files lack it.
    pub(crate) fn source(&self, config: &TransformerConfig, path: &str) -> Option<Source> {
        let names = Names {
            model: MODEL,
            block: "blk.*",
            blocks: &self.blocks,
        };
        names.source(config, path)
    }
}

const MODEL: &[TensorName] = &[
    as_is("tokens", EMBEDDING),
    as_is("positions.weight", "position_embd.weight"),
    as_is("norm_embedding", "token_embd_norm"),
    as_is("norm_final", "output_norm"),
    as_is("head", HEAD),
];

const BLOCK: &[TensorName] = &[
    as_is("norm1", "attn_norm"),
    as_is("norm2", "ffn_norm"),
    as_is("attention.q_norm", "attn_q_norm"),
    as_is("attention.k_norm", "attn_k_norm"),
    linear("attention.out", "attn_output"),
    linear("feed_forward.gate", "ffn_gate"),
    linear("feed_forward.up", "ffn_up"),
    linear("feed_forward.down", "ffn_down"),
    linear("feed_forward.router", "ffn_gate_inp"),
    linear("feed_forward.shared.gate", "ffn_gate_inp_shexp"),
    linear("feed_forward.shared.expert.gate", "ffn_gate_shexp"),
    linear("feed_forward.shared.expert.up", "ffn_up_shexp"),
    linear("feed_forward.shared.expert.down", "ffn_down_shexp"),
];

/// Queries, keys and values in three tensors.
const SEPARATE: &[TensorName] = &[query_key_value(
    "attention.qkv",
    ["attn_q", "attn_k", "attn_v"],
)];

/// The same with queries and keys ordered by rotated pairs.
const PAIRED: &[TensorName] = &[paired_query_key_value(
    "attention.qkv",
    ["attn_q", "attn_k", "attn_v"],
)];

/// Queries, keys and values in one tensor.
const FUSED: &[TensorName] = &[linear("attention.qkv", "attn_qkv")];

/// All experts of a layer in one tensor per projection.
const EXPERTS: &[TensorName] = &[
    expert_of("feed_forward.experts.*.gate", "ffn_gate_exps"),
    expert_of("feed_forward.experts.*.up", "ffn_up_exps"),
    expert_of("feed_forward.experts.*.down", "ffn_down_exps"),
];

/// One tensor per expert and projection, as in Mixtral's first files.
const SPLIT_EXPERTS: &[TensorName] = &[
    linear("feed_forward.experts.*.gate", "ffn_gate.*"),
    linear("feed_forward.experts.*.up", "ffn_up.*"),
    linear("feed_forward.experts.*.down", "ffn_down.*"),
];

pub(crate) const GEMMA: &[TensorName] = &[
    as_is("norm1_after", "post_attention_norm"),
    as_is("norm2_after", "post_ffw_norm"),
];

pub(crate) const GLM4: &[TensorName] = &[
    as_is("norm1_after", "post_attention_norm"),
    as_is("norm2_after", "post_ffw_norm"),
    part_of("feed_forward.gate", "ffn_up", [0, 2]),
    part_of("feed_forward.up", "ffn_up", [1, 2]),
];

pub(crate) const PHI3: &[TensorName] = &[
    part_of("feed_forward.gate", "ffn_up", [0, 2]),
    part_of("feed_forward.up", "ffn_up", [1, 2]),
];

pub(crate) const GPT_OSS: &[TensorName] = &[
    as_is("norm2", "post_attention_norm"),
    as_is("attention.sinks", "attn_sinks.weight"),
];

pub(crate) const OLMO2: &[TensorName] = &[
    as_is("norm1", "post_attention_norm"),
    as_is("norm2", "post_ffw_norm"),
];

/// Attention with a gate, and delta nets without the tensors whose values are ordered by heads.
pub(crate) const HYBRID: &[TensorName] = &[
    as_is("norm2", "post_attention_norm"),
    query_key_value_beside_gate("attention.qkv", ["attn_q", "attn_k", "attn_v"])
        .in_delta_nets(false),
    gate_beside_queries("attention.gate", "attn_q").in_delta_nets(false),
    as_is("attention.delta.norm", "ssm_norm"),
];

/// Delta nets whose heads of values that share a key are next to each other, as in the decoder.
pub(crate) const GROUPED_VALUES: &[TensorName] = &[
    linear("attention.qkv", "attn_qkv").in_delta_nets(true),
    linear("attention.gate", "attn_gate").in_delta_nets(true),
    linear("attention.out", "ssm_out").in_delta_nets(true),
    per_head_of_key("attention.delta.rates", "ssm_ba"),
    linear("attention.delta.convolution", "ssm_conv1d.weight"),
    as_is("attention.delta.decay", "ssm_a"),
    as_is("attention.delta.step_bias", "ssm_dt.bias"),
];

/// The same with the first head of values of every key, then the next one of every key, and so on.
pub(crate) const TILED_VALUES: &[TensorName] = &[
    linear("attention.qkv", "attn_qkv")
        .with_outputs(after_keys)
        .in_delta_nets(true),
    linear("attention.gate", "attn_gate")
        .with_outputs(values)
        .in_delta_nets(true),
    linear("attention.out", "ssm_out")
        .with_inputs(values)
        .in_delta_nets(true),
    per_head("attention.delta.rates", ["ssm_beta", "ssm_alpha"]).with_outputs(heads),
    linear("attention.delta.convolution", "ssm_conv1d.weight").with_outputs(after_keys),
    as_is("attention.delta.decay", "ssm_a").with_outputs(heads),
    as_is("attention.delta.step_bias", "ssm_dt.bias").with_outputs(heads),
];

/// Heads of values, with `size` elements each, in tiles of one head per key.
fn tiled(attention: &AttentionConfig, size: usize) -> Pieces {
    let tiles = attention.heads / attention.kv_heads;
    Pieces::in_groups(tiles, vec![size; attention.kv_heads])
}

fn heads(attention: &AttentionConfig) -> Pieces {
    tiled(attention, 1)
}

fn values(attention: &AttentionConfig) -> Pieces {
    let size = attention.delta().map(|net| net.value_dim);
    tiled(attention, size.unwrap_or(attention.head_dim))
}

/// Values after queries and keys.
fn after_keys(attention: &AttentionConfig) -> Pieces {
    Pieces {
        before: 2 * attention.kv_heads * attention.head_dim,
        ..values(attention)
    }
}

/// With two norms, the second name is that of the attention's.
pub(crate) const FALCON: &[TensorName] = &[
    as_is("norm1", "attn_norm_2").only_if(has_two_norms),
    as_is("norm2", "attn_norm").only_if(has_two_norms),
];

fn has_two_norms(config: &TransformerConfig) -> bool {
    config.wiring() == Wiring::Parallel { shared_norm: false }
}
