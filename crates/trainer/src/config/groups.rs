//! Parameter groups with factors on the optimizer's settings.

use documented::DocumentedFields;
use serde::{Deserialize, Serialize};

use super::check::{Range, check_all};
use crate::config::OptimizerKind;
use crate::error::TrainError;

/// The parameter groups. Each parameter belongs to exactly one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct Groups {
    /// Weight matrices of the blocks' linear layers.
    pub matrices: Group,
    /// Token and position embeddings, including a tied head.
    pub embeddings: Group,
    /// Weight matrix of an untied head.
    pub head: Group,
    /// Gains and biases.
    pub vectors: Group,
}

impl Default for Groups {
    fn default() -> Self {
        let vectors = Group {
            weight_decay: 0.0,
            ..Group::default()
        };
        Self {
            matrices: Group::default(),
            embeddings: Group::default(),
            head: Group::default(),
            vectors,
        }
    }
}

/// Overrides of the optimizer's settings for one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct Group {
    /// Factor on the learning rate.
    pub rate: f64,
    /// Factor on the weight decay.
    pub weight_decay: f64,
    /// Overrides `train.optimizer.beta1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta1: Option<f64>,
    /// Overrides `train.optimizer.beta2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta2: Option<f64>,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            rate: 1.0,
            weight_decay: 1.0,
            beta1: None,
            beta2: None,
        }
    }
}

impl Groups {
    /// Checks every setting.
    ///
    /// # Errors
    /// Returns the first violated rule.
    pub(super) fn check(&self, optimizer: OptimizerKind) -> Result<(), TrainError> {
        for (table, group) in [
            ("train.groups.matrices", &self.matrices),
            ("train.groups.embeddings", &self.embeddings),
            ("train.groups.head", &self.head),
            ("train.groups.vectors", &self.vectors),
        ] {
            group.check(table)?;
        }
        let matrices = &self.matrices;
        for (field, value) in [("beta1", matrices.beta1), ("beta2", matrices.beta2)] {
            if let (OptimizerKind::Muon, Some(value)) = (optimizer, value) {
                let rule = "must be absent with optimizer = muon, whose decay for matrices is train.optimizer.momentum";
                return Err(refused("train.groups.matrices", field, value, rule));
            }
        }
        Ok(())
    }
}

impl Group {
    fn check(&self, table: &'static str) -> Result<(), TrainError> {
        for (field, value) in [("rate", self.rate), ("weight_decay", self.weight_decay)] {
            check_all(table, &[(field, value, Range::NotNegative)])?;
        }
        for (field, value) in [("beta1", self.beta1), ("beta2", self.beta2)] {
            if let Some(value) = value.filter(|value| !(0.0..1.0).contains(value)) {
                let rule = "must be at least 0 and below 1";
                return Err(refused(table, field, value, rule));
            }
        }
        Ok(())
    }
}

fn refused(table: &'static str, field: &'static str, value: f64, rule: &str) -> TrainError {
    TrainError::Setting {
        table,
        field,
        value: value.to_string(),
        rule: rule.to_owned(),
    }
}
