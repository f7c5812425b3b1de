//! Parameter groups with factors on the optimizer's settings.

use super::check::{Range, require};
use super::settings::{Settings, settings};
use crate::config::OptimizerKind;
use crate::error::TrainError;

settings! {
    /// The parameter groups. Each parameter belongs to exactly one.
    pub struct Groups in "train.groups" {
        /// Weight matrices of the blocks' linear layers.
        pub matrices: Group = Group::default();
        /// Token and position embeddings, including a tied head.
        pub embeddings: Group = Group::default();
        /// Weight matrix of an untied head.
        pub head: Group = Group::default();
        /// Gains and biases.
        pub vectors: Group = without_decay();
    }

    /// Overrides of the optimizer's settings for one group.
    pub struct Group in "train.groups.*" {
        /// Factor on the learning rate.
        pub rate: f64 = 1.0, Range::NotNegative;
        /// Factor on the weight decay.
        pub weight_decay: f64 = 1.0, Range::NotNegative;
        /// Overrides `train.optimizer.beta1`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub beta1: Option<f64> = None, Range::Share;
        /// Overrides `train.optimizer.beta2`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub beta2: Option<f64> = None, Range::Share;
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
            group.check_rules_in(table)?;
        }
        let matrices = &self.matrices;
        let rule = format!(
            "must be absent with optimizer = {}, whose decay for matrices is train.optimizer.momentum",
            optimizer.name()
        );
        let has_momentum = matches!(optimizer, OptimizerKind::Muon | OptimizerKind::NorMuon);
        for (field, value) in [("beta1", matrices.beta1), ("beta2", matrices.beta2)] {
            let value = value.filter(|_| has_momentum);
            let shown = value.unwrap_or_default();
            require(
                "train.groups.matrices",
                field,
                shown,
                value.is_none(),
                &rule,
            )?;
        }
        Ok(())
    }
}

/// Gains and biases have no weight decay.
fn without_decay() -> Group {
    Group {
        weight_decay: 0.0,
        ..Group::default()
    }
}
