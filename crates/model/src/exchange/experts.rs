//! The fields of mixtures of experts.

use serde_json::{Map, Value, json};

use super::fields::Fields;
use crate::config::{ExpertGroups, ExpertScores, Experts};
use crate::error::HuggingFaceError;
use crate::transformer::checked::TransformerConfig;

/// Experts as wide as the feed-forward layer, in every layer, whose probabilities keep their sum.
pub(crate) fn of(count: usize, active: usize, balance_loss: f64) -> Experts {
    Experts {
        count,
        active,
        balance_loss,
        ..Experts::default()
    }
}

/// Reads the fields common to all types; `defaults` are those of the type. Widths, normalization and dense layers are each
/// type's own.
pub(crate) fn read(fields: &Fields<'_>, defaults: Experts) -> Result<Experts, HuggingFaceError> {
    // Each type has one of the names, and `transformers` reads either.
    let count = fields.size_by_names(["num_local_experts", "num_experts"], defaults.count)?;
    let active = fields.size("num_experts_per_tok", defaults.active)?;
    if active > count {
        let rule = format!("must be at most the number of experts, {count}");
        return Err(fields.error("num_experts_per_tok", rule));
    }
    let jitter = fields.number("router_jitter_noise", 0.0)?;
    if jitter != 0.0 {
        return Err(fields.error("router_jitter_noise", "must be 0: noise is not supported"));
    }
    let balance_loss = fields.number("router_aux_loss_coef", defaults.balance_loss)?;
    if !(balance_loss.is_finite() && balance_loss >= 0.0) {
        return Err(fields.error("router_aux_loss_coef", "must be at least 0"));
    }
    Ok(Experts {
        count,
        active,
        balance_loss,
        ..defaults
    })
}

/// Reads the fields of types whose experts may be in groups, beside an expert without a gate that is as wide as several. The
/// layers without experts are each type's own.
pub(crate) fn read_grouped(
    fields: &Fields<'_>,
    defaults: Experts,
) -> Result<Experts, HuggingFaceError> {
    let (scores, method) = match defaults.scores {
        ExpertScores::Softmax => ("softmax", None),
        ExpertScores::Sigmoid => ("sigmoid", Some("noaux_tc")),
    };
    let only = [("scoring_func", Some(scores)), ("topk_method", method)];
    for (name, value) in only {
        if let (Some(value), Some(given)) = (value, fields.optional_text(name)?)
            && given != value
        {
            return Err(fields.error(name, format!("must be {value} for this type")));
        }
    }
    let count = fields.size_by_names(["n_routed_experts", "num_local_experts"], defaults.count)?;
    let active = fields.size("num_experts_per_tok", defaults.active)?;
    let width = fields.size("moe_intermediate_size", defaults.width.unwrap_or_default())?;
    let shared = fields.size("n_shared_experts", 1)?;
    let groups = ExpertGroups {
        count: fields.size("n_group", defaults.groups.map_or(1, |groups| groups.count))?,
        active: fields.size(
            "topk_group",
            defaults.groups.map_or(1, |groups| groups.active),
        )?,
    };
    let scale = fields.number("routed_scaling_factor", defaults.scale.unwrap_or(1.0))?;
    let balance_loss = fields.number("router_aux_loss_coef", 0.0)?;
    Ok(Experts {
        count,
        active,
        width: Some(width),
        groups: (groups.count > 1).then_some(groups),
        scale: (scale != 1.0).then_some(scale),
        shared_width: Some(shared.saturating_mul(width)),
        shared_gate: false,
        balance_loss,
        ..defaults
    })
}

/// The first layers, `first_k_dense_replace` of them, have no experts.
pub(crate) fn first_dense_layers(
    fields: &Fields<'_>,
    default: usize,
    n_layers: usize,
) -> Result<Vec<usize>, HuggingFaceError> {
    let first = fields.count("first_k_dense_replace", default)?;
    Ok((0..first.min(n_layers)).collect())
}

/// The fields for [`read_grouped`] and [`first_dense_layers`].
pub(crate) fn write_grouped(config: &TransformerConfig, fields: &mut Map<String, Value>) {
    let Some(experts) = config.experts() else {
        return;
    };
    let width = experts.width.unwrap_or(1).max(1);
    let shared = experts.shared_width.map(|shared| shared / width);
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set("n_routed_experts", json!(experts.count));
    set("num_experts_per_tok", json!(experts.active));
    if experts.balance_loss > 0.0 {
        set("router_aux_loss_coef", json!(experts.balance_loss));
    }
    set("moe_intermediate_size", json!(experts.width));
    set("n_shared_experts", json!(shared));
    set(
        "n_group",
        json!(experts.groups.map_or(1, |groups| groups.count)),
    );
    set(
        "topk_group",
        json!(experts.groups.map_or(1, |groups| groups.active)),
    );
    set("routed_scaling_factor", json!(experts.scale.unwrap_or(1.0)));
    set("norm_topk_prob", json!(experts.normalize));
    set("first_k_dense_replace", json!(experts.dense_layers.len()));
}

/// The layers without experts, by `mlp_only_layers` and `decoder_sparse_step`.
pub(crate) fn dense_layers(
    fields: &Fields<'_>,
    n_layers: usize,
) -> Result<Vec<usize>, HuggingFaceError> {
    let listed = fields
        .optional_counts("mlp_only_layers")?
        .unwrap_or_default();
    let step = fields.size("decoder_sparse_step", 1)?;
    let is_dense = |layer: &usize| listed.contains(layer) || !(layer + 1).is_multiple_of(step);
    Ok((0..n_layers).filter(is_dense).collect())
}

/// The fields for [`read`], the number of experts by its name in the type.
pub(crate) fn write(config: &TransformerConfig, count: &str, fields: &mut Map<String, Value>) {
    let Some(experts) = config.experts() else {
        return;
    };
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    set(count, json!(experts.count));
    set("num_experts_per_tok", json!(experts.active));
    set("router_aux_loss_coef", json!(experts.balance_loss));
}

/// The fields for [`dense_layers`].
pub(crate) fn write_dense_layers(config: &TransformerConfig, fields: &mut Map<String, Value>) {
    if let Some(experts) = config.experts() {
        fields.insert("decoder_sparse_step".to_owned(), json!(1));
        fields.insert("mlp_only_layers".to_owned(), json!(experts.dense_layers));
    }
}
