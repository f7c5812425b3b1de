//! The interface of the update rules, and the choice of a parameter's rule by the run's optimizer and the parameter's group.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend as BurnBackend;
use emberlm_kernels::{AdamWInputs, Backend};
use emberlm_model::ParameterRole;

use super::decay::Decay;
use super::state::{StateKind, StateKinds};
use super::{Moments, ParameterGroup, Rule};
use crate::config::{Group, Groups, OptimizerConfig, ParametrizationConfig, TrainConfig};

/// An update rule with its hyperparameters for a parameter, except for the learning rate.
pub(super) trait UpdateRule {
    /// True if elements are updated independently of each other, so that a parameter can be divided among ranks.
    const IS_ELEMENTWISE: bool;
    /// True if a negative clipping factor leaves the parameter and its state as they are.
    const READS_GUARD: bool = false;
    /// The tensors of a parameter's state.
    const STATE: &'static [StateKind];
    /// The most memory that an update takes in addition to its inputs, in copies of the parameter.
    const TEMPORARIES: f64;
    /// The same in copies of the largest tensor of the state that does not have the parameter's shape.
    const OTHER_TEMPORARIES: f64 = 0.0;
    /// The power of the width with which the effect of an update on the outputs of a linear layer grows.
    const WIDTH_POWER: f64;

    /// The largest dimension of a parameter that has square tensors in its state.
    fn largest_side(&self) -> usize {
        usize::MAX
    }

    /// The rule with `factor` on the term that is added to the root of the second moment, if it has one.
    fn with_epsilon_factor(self, _factor: f64) -> Self
    where
        Self: Sized,
    {
        self
    }

    /// The update of a parameter.
    fn update<B: Backend, const D: usize>(self, inputs: UpdateInputs<'_, B, D>) -> Updated<B, D>;
}

/// The update of a parameter by its rule.
pub(super) enum Updated<B: Backend, const D: usize> {
    /// The parameter and its moments after the update.
    Made(Tensor<B, D>, Moments<B>),
    /// The inputs of the update, which is made together with those of other parameters, with the step's factor.
    Together(AdamWInputs<B>),
}

/// The inputs of the update of a parameter.
pub(super) struct UpdateInputs<'a, B: BurnBackend, const D: usize> {
    pub(super) parameter: Tensor<B, D>,
    pub(super) grad: Tensor<B, D>,
    /// The factor on the gradient, which clips it.
    pub(super) factor: Option<Tensor<B, 1>>,
    /// The state; empty before the first update.
    pub(super) moments: Moments<B>,
    /// The step's learning rate for this parameter.
    pub(super) rate: f64,
    /// The step's weight decay for this parameter.
    pub(super) decay: Decay,
    /// The number of this update.
    pub(super) number: u64,
    /// The widths of the layers whose weights the matrix stores side by side; `None` for one layer.
    pub(super) widths: Option<&'a [usize]>,
}

/// The gradient times the clipping factor.
pub(super) fn clipped<B: BurnBackend, const D: usize>(
    grad: Tensor<B, D>,
    factor: Option<Tensor<B, 1>>,
) -> Tensor<B, D> {
    match factor {
        Some(factor) => grad * factor.unsqueeze::<D>(),
        None => grad,
    }
}

/// An optimizer's settings, which determine the rule of each parameter.
pub(super) trait RuleSettings {
    /// The rule of a parameter by its role and its group's settings.
    fn rule(&self, role: &ParameterRole, own: &Group) -> Rule;
}

/// The settings of a run's optimizer.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) optimizer: OptimizerConfig,
    pub(super) groups: Groups,
    /// The factor on the learning rate per block below the head.
    pub(super) layer_decay: f64,
    pub(super) parametrization: ParametrizationConfig,
}

impl Settings {
    pub(super) fn of(config: &TrainConfig) -> Self {
        Self {
            optimizer: config.optimizer.clone(),
            groups: config.groups.clone(),
            layer_decay: config.layer_decay,
            parametrization: config.parametrization.clone(),
        }
    }

    /// The settings of a parameter's group.
    pub(super) fn group(&self, role: &ParameterRole) -> &Group {
        self.groups.of(ParameterGroup::of(role))
    }
}

/// The memory of the updates of a run's parameters of one role.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpdateMemory {
    kinds: StateKinds,
    /// The most memory that the update of a parameter takes in addition, in copies of the parameter.
    pub(crate) temporaries: f64,
    /// The same in copies of the largest tensor of [`UpdateMemory::other_state`].
    other_temporaries: f64,
    /// True if a parameter can be divided among ranks.
    pub(crate) is_elementwise: bool,
}

impl UpdateMemory {
    /// The memory for the parameters of `role`.
    pub(crate) fn of(train: &TrainConfig, role: &ParameterRole) -> Self {
        let rule = Settings::of(train).rule(role);
        Self {
            kinds: rule.state_kinds(),
            temporaries: rule.temporaries(),
            other_temporaries: rule.other_temporaries(),
            is_elementwise: rule.is_elementwise(),
        }
    }

    /// The tensors of a parameter's state that have its shape.
    pub(crate) fn moments(&self) -> f64 {
        let kinds = self.kinds.all.iter();
        kinds.filter(|kind| kind.has_parameter_shape()).count() as f64
    }

    /// The elements of the other tensors of a parameter's state.
    pub(crate) fn other_state(&self, parameter: &[usize]) -> f64 {
        self.other_elements(parameter).sum()
    }

    /// The elements that an update takes because of them.
    pub(crate) fn other_temporaries(&self, parameter: &[usize]) -> f64 {
        self.other_temporaries * self.other_elements(parameter).fold(0.0, f64::max)
    }

    fn other_elements(&self, parameter: &[usize]) -> impl Iterator<Item = f64> {
        let kinds = self.kinds.of(parameter);
        let kinds = kinds.filter(|kind| !kind.has_parameter_shape());
        kinds.map(move |kind| kind.elements(parameter) as f64)
    }
}

/// Declares the update rules with a row for each optimizer: the variant of [`OptimizerConfig`], and the module whose `Step`
/// is its [`UpdateRule`]. The settings of the variant are its [`RuleSettings`].
macro_rules! rules {
    ($($optimizer:ident => $module:ident,)+) => {
        /// The update rule of a parameter.
        enum Rule {
            $( $optimizer($module::Step), )+
        }

        impl Rule {
            /// Returns true if elements are updated independently of each other.
            fn is_elementwise(&self) -> bool {
                match self { $( Self::$optimizer(_) => <$module::Step>::IS_ELEMENTWISE, )+ }
            }

            /// Returns true if a negative clipping factor leaves everything as it is.
            fn reads_guard(&self) -> bool {
                match self { $( Self::$optimizer(_) => <$module::Step>::READS_GUARD, )+ }
            }

            /// The tensors of the state.
            fn state_kinds(&self) -> StateKinds {
                match self {
                    $( Self::$optimizer(step) => StateKinds {
                        all: <$module::Step>::STATE,
                        largest_side: step.largest_side(),
                    }, )+
                }
            }

            /// The memory that an update takes in addition, in copies of the parameter.
            fn temporaries(&self) -> f64 {
                match self { $( Self::$optimizer(_) => <$module::Step>::TEMPORARIES, )+ }
            }

            /// The memory that an update takes in addition, in copies of the largest tensor of another shape.
            fn other_temporaries(&self) -> f64 {
                match self { $( Self::$optimizer(_) => <$module::Step>::OTHER_TEMPORARIES, )+ }
            }

            /// The power of the width with which the effect of an update of a linear layer grows.
            fn width_power(&self) -> f64 {
                match self { $( Self::$optimizer(_) => <$module::Step>::WIDTH_POWER, )+ }
            }

            /// The rule with a factor on its ε, if it has one.
            fn with_epsilon_factor(self, factor: f64) -> Self {
                match self {
                    $( Self::$optimizer(step) => Self::$optimizer(step.with_epsilon_factor(factor)), )+
                }
            }

            /// The update of a parameter.
            fn update<B: Backend, const D: usize>(
                self,
                inputs: UpdateInputs<'_, B, D>,
            ) -> Updated<B, D> {
                match self { $( Self::$optimizer(step) => step.update(inputs), )+ }
            }
        }

        impl Settings {
            /// The rule of a parameter by its role.
            fn rule(&self, role: &ParameterRole) -> Rule {
                let own = self.group(role);
                match &self.optimizer {
                    $( OptimizerConfig::$optimizer(config) => config.rule(role, own), )+
                }
            }

            /// The weight decay of a parameter by its role.
            fn decay(&self, role: &ParameterRole) -> Decay {
                let factor = self.group(role).weight_decay;
                match &self.optimizer {
                    $( OptimizerConfig::$optimizer(config) => Decay {
                        amount: config.weight_decay * factor,
                        cautious: config.cautious_decay,
                    }, )+
                }
            }
        }

        /// The optimizers with the tensors of their states.
        const STATES: &[(OptimizerKind, &[StateKind])] =
            &[$( (OptimizerKind::$optimizer, <$module::Step>::STATE) ),+];
    };
}
pub(super) use rules;
