//! Stub.
use serde::{Deserialize, Serialize};

use crate::config::TrainConfig;

/// What steps are compared with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    /// Steps skipped since the last one that was not.
    pub in_a_row: usize,
    /// Steps skipped in all.
    pub total: usize,
}

/// What to do with a step.
pub enum Verdict {
    /// Update.
    Go,
    /// Do not.
    Skip {
        /// Why.
        reason: String,
    },
}

impl Watch {
    /// Judges.
    pub fn judge(&mut self, loss: f64, norm: f64, _config: &TrainConfig) -> Verdict {
        if loss.is_finite() && norm.is_finite() {
            self.in_a_row = 0;
            return Verdict::Go;
        }
        self.in_a_row += 1;
        self.total += 1;
        Verdict::Skip {
            reason: format!("the loss is {loss} and the gradient norm {norm}"),
        }
    }
}
