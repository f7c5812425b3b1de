//! The fields of mixtures of experts.

use serde_json::{Map, Value, json};

use super::fields::Fields;
use crate::config::Experts;
use crate::error::HuggingFaceError;
use crate::transformer::checked::TransformerConfig;

/// Experts as wide as the feed-forward layer, in every layer, whose probabilities keep their sum.
pub(crate) fn of(count: usize, active: usize, balance_loss: f64) -> Experts {
    Experts {
        count,
        active,
        width: None,
        normalize: false,
        shared_width: None,
        balance_loss,
        z_loss: 0.0,
        dense_layers: Vec::new(),
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
