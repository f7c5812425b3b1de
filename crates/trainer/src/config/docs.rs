//! The documentation of a run's settings, for `config.toml` and for what reads it.

use documented::DocumentedFields;
use emberlm_model::ModelConfig;

use super::optimizer::{AdamWConfig, LionConfig, MuonConfig};
use super::schedule::{ConstantConfig, CooldownConfig, DecayConfig, InverseSqrtConfig};
use super::sections::{
    CheckpointConfig, EvaluationConfig, LossConfig, NonFiniteConfig, OutliersConfig,
    PrecisionConfig,
};
use super::{DataConfig, Group, Groups, MixedDataset, TrainConfig};

/// The documentation of the setting `key` in a table such as `train.optimizer`, whose `kind` is given where the table has
/// one. `None` for a setting that the table, or its kind, does not have.
pub fn field_docs(table: &str, kind: Option<&str>, key: &str) -> Option<&'static str> {
    if key == "kind" {
        return kind_docs(table);
    }
    let docs = match (table, kind) {
        ("model", _) => ModelConfig::get_field_docs(key),
        ("data", _) => DataConfig::get_field_docs(key),
        ("data.mix", _) => MixedDataset::get_field_docs(key),
        ("train", _) => TrainConfig::get_field_docs(key),
        ("train.precision", _) => PrecisionConfig::get_field_docs(key),
        ("train.loss", _) => LossConfig::get_field_docs(key),
        ("train.optimizer", Some("adamw")) => AdamWConfig::get_field_docs(key),
        ("train.optimizer", Some("muon")) => MuonConfig::get_field_docs(key),
        ("train.optimizer", Some("lion")) => LionConfig::get_field_docs(key),
        ("train.schedule", Some("constant")) => ConstantConfig::get_field_docs(key),
        ("train.schedule", Some("cosine" | "linear")) => DecayConfig::get_field_docs(key),
        ("train.schedule", Some("inverse_sqrt")) => InverseSqrtConfig::get_field_docs(key),
        ("train.schedule", Some("warmup_stable_decay")) => CooldownConfig::get_field_docs(key),
        ("train.skip", Some("non_finite")) => NonFiniteConfig::get_field_docs(key),
        ("train.skip", Some("outliers")) => OutliersConfig::get_field_docs(key),
        ("train.evaluation", _) => EvaluationConfig::get_field_docs(key),
        ("train.checkpoints", _) => CheckpointConfig::get_field_docs(key),
        ("train.groups", _) => Groups::get_field_docs(key),
        _ if table.starts_with("train.groups.") => Group::get_field_docs(key),
        _ => return None,
    };
    docs.ok()
}

fn kind_docs(table: &str) -> Option<&'static str> {
    Some(match table {
        "train.optimizer" => "adamw, muon (matrices; AdamW the rest) or lion.",
        "train.schedule" => "constant, cosine, linear, inverse_sqrt or warmup_stable_decay.",
        "train.skip" => {
            "non_finite (NaN and infinite losses or gradients) or outliers (also those far above the mean)."
        }
        _ => return None,
    })
}
