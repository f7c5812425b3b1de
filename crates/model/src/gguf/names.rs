//! Tensor names of GGUF files.
//!
//! All architectures have the same names, with the exceptions below. Linear layers are stored `[out, in]`, fused
//! queries, keys and values in this order.

use emberlm_gguf::GgufFile;

use super::architecture::Architecture;
use super::{EMBEDDING, HEAD};
use crate::config::Wiring;
use crate::transformer::checked::TransformerConfig;
use crate::weights::map::Source;
use crate::weights::names::{
    self, TensorName, as_is, expert_of, linear, paired_query_key_value, part_of, query_key_value,
};

/// Tables of names that apply to a file, the first match counts.
pub(crate) struct GgufNames {
    tables: Vec<&'static [TensorName]>,
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
            tables: vec![architecture.names, projections, experts, COMMON],
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
            tables: vec![architecture.names, projections, EXPERTS, COMMON],
        }
    }

    /// Returns the source of the parameter at `path`; `None` if files lack it.
    pub(crate) fn source(&self, config: &TransformerConfig, path: &str) -> Option<Source> {
        let rows = self.tables.iter().copied().flatten();
        let rows = rows.filter(|row| row.applies_to(config));
        let experts = config.experts().map_or(1, |experts| experts.count);
        names::source_of_expert(rows, &config.stack().block.attention, experts, path)
    }
}

const COMMON: &[TensorName] = &[
    as_is("tokens", EMBEDDING),
    as_is("positions.weight", "position_embd.weight"),
    as_is("norm_embedding", "token_embd_norm"),
    as_is("norm_final", "output_norm"),
    as_is("head", HEAD),
    as_is("blocks.*.norm1", "blk.*.attn_norm"),
    as_is("blocks.*.norm2", "blk.*.ffn_norm"),
    as_is("blocks.*.attention.q_norm", "blk.*.attn_q_norm"),
    as_is("blocks.*.attention.k_norm", "blk.*.attn_k_norm"),
    linear("blocks.*.attention.out", "blk.*.attn_output"),
    linear("blocks.*.feed_forward.gate", "blk.*.ffn_gate"),
    linear("blocks.*.feed_forward.up", "blk.*.ffn_up"),
    linear("blocks.*.feed_forward.down", "blk.*.ffn_down"),
    linear("blocks.*.feed_forward.router", "blk.*.ffn_gate_inp"),
    linear(
        "blocks.*.feed_forward.shared.gate",
        "blk.*.ffn_gate_inp_shexp",
    ),
    linear(
        "blocks.*.feed_forward.shared.expert.gate",
        "blk.*.ffn_gate_shexp",
    ),
    linear(
        "blocks.*.feed_forward.shared.expert.up",
        "blk.*.ffn_up_shexp",
    ),
    linear(
        "blocks.*.feed_forward.shared.expert.down",
        "blk.*.ffn_down_shexp",
    ),
];

/// Queries, keys and values in three tensors.
const SEPARATE: &[TensorName] = &[query_key_value(
    "blocks.*.attention.qkv",
    ["blk.*.attn_q", "blk.*.attn_k", "blk.*.attn_v"],
)];

/// The same with queries and keys ordered by rotated pairs.
const PAIRED: &[TensorName] = &[paired_query_key_value(
    "blocks.*.attention.qkv",
    ["blk.*.attn_q", "blk.*.attn_k", "blk.*.attn_v"],
)];

/// Queries, keys and values in one tensor.
const FUSED: &[TensorName] = &[linear("blocks.*.attention.qkv", "blk.*.attn_qkv")];

/// All experts of a layer in one tensor per projection.
const EXPERTS: &[TensorName] = &[
    expert_of(
        "blocks.*.feed_forward.experts.*.gate",
        "blk.*.ffn_gate_exps",
    ),
    expert_of("blocks.*.feed_forward.experts.*.up", "blk.*.ffn_up_exps"),
    expert_of(
        "blocks.*.feed_forward.experts.*.down",
        "blk.*.ffn_down_exps",
    ),
];

/// One tensor per expert and projection, as in Mixtral's first files.
const SPLIT_EXPERTS: &[TensorName] = &[
    linear("blocks.*.feed_forward.experts.*.gate", "blk.*.ffn_gate.*"),
    linear("blocks.*.feed_forward.experts.*.up", "blk.*.ffn_up.*"),
    linear("blocks.*.feed_forward.experts.*.down", "blk.*.ffn_down.*"),
];

pub(crate) const GEMMA: &[TensorName] = &[
    as_is("blocks.*.norm1_after", "blk.*.post_attention_norm"),
    as_is("blocks.*.norm2_after", "blk.*.post_ffw_norm"),
];

pub(crate) const GLM4: &[TensorName] = &[
    as_is("blocks.*.norm1_after", "blk.*.post_attention_norm"),
    as_is("blocks.*.norm2_after", "blk.*.post_ffw_norm"),
    part_of("blocks.*.feed_forward.gate", "blk.*.ffn_up", [0, 2]),
    part_of("blocks.*.feed_forward.up", "blk.*.ffn_up", [1, 2]),
];

pub(crate) const PHI3: &[TensorName] = &[
    part_of("blocks.*.feed_forward.gate", "blk.*.ffn_up", [0, 2]),
    part_of("blocks.*.feed_forward.up", "blk.*.ffn_up", [1, 2]),
];

pub(crate) const OLMO2: &[TensorName] = &[
    as_is("blocks.*.norm1", "blk.*.post_attention_norm"),
    as_is("blocks.*.norm2", "blk.*.post_ffw_norm"),
];

/// With two norms, the second name is that of the attention's.
pub(crate) const FALCON: &[TensorName] = &[
    as_is("blocks.*.norm1", "blk.*.attn_norm_2").only_if(has_two_norms),
    as_is("blocks.*.norm2", "blk.*.attn_norm").only_if(has_two_norms),
];

fn has_two_norms(config: &TransformerConfig) -> bool {
    config.wiring() == Wiring::Parallel { shared_norm: false }
}
