//! The factors on a parameter's settings by the size of the model ([`ParametrizationConfig`]).

use emberlm_kernels::Backend;
use emberlm_model::config::SizeRatio;
use emberlm_model::weights::whole_path;
use emberlm_model::{ParameterRole, Parameters};

use super::{Optimizer, block_index};
use crate::config::ParametrizationConfig;

/// The factors on a parameter's settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SizeFactors {
    /// On the learning rate.
    pub(super) rate: f64,
    /// On the weight decay.
    pub(super) decay: f64,
    /// On AdamW's ε.
    pub(super) epsilon: f64,
}

/// The size of the model with these parameters and `blocks` blocks over that of the base. The width is that of the token table.
pub(super) fn of(
    parametrization: &ParametrizationConfig,
    parameters: &Parameters,
    blocks: usize,
) -> SizeRatio {
    let mut tables = parameters.iter();
    let tokens = tables.find(|parameter| whole_path(&parameter.path) == "tokens");
    match tokens.and_then(|table| table.shape.last()) {
        Some(&width) => parametrization.ratio([width, blocks]),
        None => SizeRatio::ONE,
    }
}

impl<B: Backend> Optimizer<B> {
    /// The factors on the settings of the parameter at `path`, whose updates have an effect that grows with this power of the
    /// width.
    pub(super) fn size_factors(
        &self,
        path: &str,
        role: &ParameterRole,
        width_power: f64,
    ) -> SizeFactors {
        let SizeRatio { width, depth } = self.size;
        // The inputs of the gate of value embeddings and the taps of convolutions do not grow.
        let grows = match role {
            ParameterRole::Matrix | ParameterRole::FusedMatrix { .. } => true,
            ParameterRole::Router => ![".values.gate", ".delta.convolution"]
                .iter()
                .any(|end| path.ends_with(end)),
            ParameterRole::Embedding
            | ParameterRole::Head
            | ParameterRole::Vector
            | ParameterRole::Adapter => false,
        };
        let effect = match grows {
            true => width.powf(width_power),
            false => 1.0,
        };
        let (decay, epsilon) = match self.settings.parametrization.scales_decay_and_epsilon() {
            true if block_index(path).is_some() => (effect, 1.0 / (width * depth)),
            true => (effect, 1.0 / width),
            false => (1.0, 1.0),
        };
        SizeFactors {
            rate: 1.0 / effect,
            decay,
            epsilon,
        }
    }
}
