//! The update rule of a parameter, by the run's optimizer and the parameter's group.

use super::groups::ParameterGroup;
use super::lion::LionStep;
use super::muon::MuonStep;
use super::state::StateKind;
use crate::config::{
    AdamWConfig, Group, Groups, LionConfig, MuonConfig, OptimizerConfig, TrainConfig,
};
use emberlm_kernels::AdamWStep;
use emberlm_model::ParameterRole;

/// The settings of a run's optimizer.
#[derive(Clone)]
pub(super) struct Settings {
    optimizer: OptimizerConfig,
    groups: Groups,
    layer_decay: f64,
}

/// The update rule of a parameter with its hyperparameters, except for the step's learning rate.
pub(super) enum Rule {
    AdamW(AdamWRule),
    Muon(MuonStep),
    Lion(LionStep),
}

impl Rule {
    /// Returns true if elements are updated independently of each other, so that a parameter can be divided among ranks.
    pub(super) fn is_elementwise(&self) -> bool {
        match self {
            Self::AdamW(_) | Self::Lion(_) => true,
            Self::Muon(_) => false,
        }
    }

    /// The tensors of a parameter's state.
    pub(super) fn state_kinds(&self) -> &'static [StateKind] {
        match self {
            Self::AdamW(_) => &[StateKind::First, StateKind::Second],
            Self::Muon(_) | Self::Lion(_) => &[StateKind::Momentum],
        }
    }
}

/// AdamW's hyperparameters for a group.
pub(super) struct AdamWRule {
    /// The factor on the step's learning rate.
    rate_factor: f64,
    beta1: f64,
    beta2: f64,
    epsilon: f64,
    decay: f64,
}

impl AdamWRule {
    fn of(config: &AdamWConfig, own: &Group) -> Self {
        Self {
            rate_factor: own.rate,
            beta1: own.beta1.unwrap_or(config.beta1),
            beta2: own.beta2.unwrap_or(config.beta2),
            epsilon: config.epsilon,
            decay: config.weight_decay * own.weight_decay,
        }
    }

    /// The hyperparameters of update number `step` with a learning rate.
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
            optimizer: config.optimizer.clone(),
            groups: config.groups.clone(),
            layer_decay: config.layer_decay,
        }
    }

    /// The factor on the learning rate per block below the head.
    pub(super) fn layer_decay(&self) -> f64 {
        self.layer_decay
    }

    /// The rule of a parameter by its role. Muon updates only the linear layers' weights, AdamW all other parameters.
    pub(super) fn rule(&self, role: &ParameterRole) -> Rule {
        let is_matrix = matches!(
            role,
            ParameterRole::Matrix | ParameterRole::FusedMatrix { .. }
        );
        let own = self.groups.of(ParameterGroup::of(role));
        match &self.optimizer {
            OptimizerConfig::AdamW(adamw) => Rule::AdamW(AdamWRule::of(adamw, own)),
            OptimizerConfig::Muon(muon) if is_matrix => Rule::Muon(MuonStep {
                rate_factor: own.rate,
                momentum: muon.momentum,
                decay: muon.weight_decay * own.weight_decay,
            }),
            OptimizerConfig::Muon(muon) => Rule::AdamW(AdamWRule::of(&adamw_of(muon), own)),
            OptimizerConfig::Lion(LionConfig {
                beta1,
                beta2,
                weight_decay,
            }) => Rule::Lion(LionStep {
                rate_factor: own.rate,
                beta1: own.beta1.unwrap_or(*beta1),
                beta2: own.beta2.unwrap_or(*beta2),
                decay: weight_decay * own.weight_decay,
            }),
        }
    }
}

/// The settings of AdamW for the parameters that Muon does not update.
fn adamw_of(muon: &MuonConfig) -> AdamWConfig {
    AdamWConfig {
        beta1: muon.beta1,
        beta2: muon.beta2,
        epsilon: muon.epsilon,
        weight_decay: muon.weight_decay,
    }
}
