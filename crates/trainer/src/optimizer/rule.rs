//! What a run's settings and a parameter's group make of its update.

use super::groups::ParameterGroup;
use super::lion::LionStep;
use super::muon::MuonStep;
use crate::config::{Groups, OptimizerKind, TrainConfig};
use emberlm_kernels::AdamWStep;
use emberlm_model::ParameterRole;

/// The settings of a run's optimizer.
#[derive(Clone)]
pub(super) struct Settings {
    kind: OptimizerKind,
    beta1: f64,
    beta2: f64,
    epsilon: f64,
    momentum: f64,
    decay: f64,
    groups: Groups,
}

/// How a parameter is updated, with its numbers but for the step's rate.
pub(super) enum Rule {
    AdamW(AdamWRule),
    Muon(MuonStep),
    Lion(LionStep),
}

/// AdamW's numbers of a group.
pub(super) struct AdamWRule {
    /// On the step's rate.
    rate_factor: f64,
    beta1: f64,
    beta2: f64,
    epsilon: f64,
    decay: f64,
}

impl AdamWRule {
    /// Of the update number `step` with a rate.
    pub(super) fn at(&self, rate: f64, step: u64) -> AdamWStep {
        AdamWStep {
            rate: rate * self.rate_factor,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            decay: self.decay,
            step,
        }
    }
}

impl Settings {
    pub(super) fn of(config: &TrainConfig) -> Self {
        Self {
            kind: config.optimizer,
            beta1: config.beta1,
            beta2: config.beta2,
            epsilon: config.epsilon,
            momentum: config.momentum,
            decay: config.weight_decay,
            groups: config.groups.clone(),
        }
    }

    /// The rule of a parameter by its role. Muon updates the linear layers' weights alone; what else there is, AdamW.
    pub(super) fn rule(&self, role: &ParameterRole) -> Rule {
        let is_matrix = matches!(
            role,
            ParameterRole::Matrix | ParameterRole::FusedMatrix { .. }
        );
        let own = self.groups.of(ParameterGroup::of(role));
        let decay = self.decay * own.weight_decay;
        let beta1 = own.beta1.unwrap_or(self.beta1);
        let beta2 = own.beta2.unwrap_or(self.beta2);
        match self.kind {
            OptimizerKind::Muon if is_matrix => Rule::Muon(MuonStep {
                rate_factor: own.rate,
                momentum: self.momentum,
                decay,
            }),
            OptimizerKind::AdamW | OptimizerKind::Muon => Rule::AdamW(AdamWRule {
                rate_factor: own.rate,
                beta1,
                beta2,
                epsilon: self.epsilon,
                decay,
            }),
            OptimizerKind::Lion => Rule::Lion(LionStep {
                rate_factor: own.rate,
                beta1,
                beta2,
                decay,
            }),
        }
    }
}
