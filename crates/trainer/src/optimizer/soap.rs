//! SOAP (Vyas et al. 2024, arXiv 2409.11321): Adam in the eigenbases of Shampoo's preconditioner.
//!
//! ```text
//! m  <- β₁ · m + (1 - β₁) · g
//! g' =  Q_Lᵀ g Q_R,  m' = Q_Lᵀ m Q_R
//! v  <- β₂ · v + (1 - β₂) · g'²
//! p  <- p · (1 - rate · decay) - rate · Q_L (√(1 - β₂ᵗ) / (1 - β₁ᵗ) · m' / (√v + ε)) Q_Rᵀ
//! L  <- β₂ · L + (1 - β₂) · g gᵀ,  R <- β₂ · R + (1 - β₂) · gᵀ g
//! Q_L <- QR(L Q_L),  Q_R <- QR(R Q_R)                                  (every `precondition_frequency` updates)
//! ```
//!
//! As in the authors' implementation:
//!
//! - The first update only makes `L` and `R`, and `Q_L` and `Q_R` by an eigendecomposition, so that no gradient is rotated by a basis
//!   that has seen it. The parameter does not change, and `t` is the number of the update minus 1.
//! - `QR` begins with the columns in order of falling estimates `diag(Qᵀ L Q)`, and `v` is reordered like them.
//! - A side longer than `max_precond_dim` is not rotated.
//! - Queries, keys and values, which are stored as one matrix, are rotated as one matrix.
//!
//! The authors keep `m'` and rotate it back and forth whenever the bases change. The result is the same, since these are orthogonal.
//! They decay the weights after the update, by which the decay differs by `rate² · decay · u`, and rotate tables of tokens, too.

use burn::tensor::{Shape, Tensor};
use emberlm_kernels::Backend;
use emberlm_model::ParameterRole;

use super::eigenbasis::{Eigenbasis, product};
use super::rule::{RuleSettings, UpdateInputs, UpdateRule, Updated, clipped};
use super::state::{StateKind, matrix_shape};
use super::{Moments, Rule};
use crate::config::{AdamWConfig, Group, SoapConfig};

const LEFT: [StateKind; 2] = [StateKind::Left, StateKind::LeftBasis];
const RIGHT: [StateKind; 2] = [StateKind::Right, StateKind::RightBasis];

/// SOAP's hyperparameters for a group.
pub(super) struct Step {
    beta1: f64,
    beta2: f64,
    epsilon: f64,
    frequency: u64,
    largest_side: usize,
}

/// SOAP updates only the linear layers' weights, AdamW all other parameters.
impl RuleSettings for SoapConfig {
    fn rule(&self, role: &ParameterRole, own: &Group) -> Rule {
        match role {
            ParameterRole::Matrix | ParameterRole::FusedMatrix { .. } => Rule::Soap(Step {
                beta1: own.beta1.unwrap_or(self.beta1),
                beta2: own.beta2.unwrap_or(self.beta2),
                epsilon: self.epsilon,
                frequency: self.precondition_frequency as u64,
                largest_side: self.max_precond_dim,
            }),
            _ => AdamWConfig::from(self).rule(role, own),
        }
    }
}

impl UpdateRule for Step {
    const IS_ELEMENTWISE: bool = false;
    const STATE: &'static [StateKind] = &[
        StateKind::First,
        StateKind::Second,
        StateKind::Left,
        StateKind::LeftBasis,
        StateKind::Right,
        StateKind::RightBasis,
    ];
    const TEMPORARIES: f64 = 4.0;
    /// The products and their copies on the host, in f64.
    const OTHER_TEMPORARIES: f64 = 9.0;
    /// As that of Adam, whose update this is in another basis.
    const WIDTH_POWER: f64 = 1.0;

    fn largest_side(&self) -> usize {
        self.largest_side
    }

    fn with_epsilon_factor(self, factor: f64) -> Self {
        Self {
            epsilon: self.epsilon * factor,
            ..self
        }
    }

    fn update<B: Backend, const D: usize>(self, inputs: UpdateInputs<'_, B, D>) -> Updated<B, D> {
        let grad = clipped(inputs.grad, inputs.factor);
        let shape = grad.shape();
        let mut moments = inputs.moments;
        let Some(second) = moments.take::<D>(StateKind::Second) else {
            let zeros = grad.zeros_like();
            let moments = Moments::default()
                .with(StateKind::First, zeros.clone())
                .with(StateKind::Second, zeros);
            let bases = self.first_bases(matrix(grad));
            return Updated::Made(inputs.parameter, bases.put::<D>(moments, &shape));
        };
        let first = moments.take_like(StateKind::First, &grad);
        let mut bases = Bases::take::<D>(&mut moments, &shape);
        let first = first * self.beta1 + grad.clone() * (1.0 - self.beta1);
        let grad = matrix(grad);
        let rotated = bases.rotated(grad.clone());
        let mut second =
            matrix(second) * self.beta2 + rotated.clone() * rotated * (1.0 - self.beta2);
        let number = inputs.number.saturating_sub(1).max(1);
        let power = |beta: f64| 1.0 - beta.powf(number as f64);
        let correction = power(self.beta2).sqrt() / power(self.beta1);
        let change = bases.rotated(matrix(first.clone()));
        let change = change / (second.clone().sqrt() + self.epsilon) * correction;
        let change = bases.rotated_back(change).reshape(shape.clone());
        let (decay, rate) = (inputs.decay, inputs.rate);
        let updated = decay.with_update(inputs.parameter, change, rate);
        bases = bases.with_gradient(grad, self.beta2);
        if number.is_multiple_of(self.frequency) {
            (bases, second) = bases.refined(second);
        }
        let moments = Moments::default()
            .with(StateKind::First, first)
            .with(StateKind::Second, second.reshape::<D, Shape>(shape.clone()));
        Updated::Made(updated, bases.put::<D>(moments, &shape))
    }
}

impl Step {
    /// The bases after the first gradient.
    fn first_bases<B: Backend>(&self, grad: Tensor<B, 2>) -> Bases<B> {
        let [rows, columns] = grad.dims();
        let first = |side: usize, product: &dyn Fn() -> Tensor<B, 2>| {
            let is_rotated = side <= self.largest_side;
            is_rotated.then(|| Eigenbasis::of_first(product(), self.beta2))
        };
        Bases {
            left: first(rows, &|| of_rows(&grad)),
            right: first(columns, &|| of_columns(&grad)),
        }
    }
}

/// A parameter or its gradient as a matrix, whose columns are the last dimension.
fn matrix<B: Backend, const D: usize>(of: Tensor<B, D>) -> Tensor<B, 2> {
    let shape = matrix_shape(&of.shape());
    of.reshape(shape)
}

/// `G Gᵀ`.
fn of_rows<B: Backend>(grad: &Tensor<B, 2>) -> Tensor<B, 2> {
    product(grad.clone(), grad.clone().transpose())
}

/// `Gᵀ G`.
fn of_columns<B: Backend>(grad: &Tensor<B, 2>) -> Tensor<B, 2> {
    product(grad.clone().transpose(), grad.clone())
}

/// The rotations of both sides of a matrix. A side that is not rotated has none.
struct Bases<B: Backend> {
    left: Option<Eigenbasis<B>>,
    right: Option<Eigenbasis<B>>,
}

impl<B: Backend> Bases<B> {
    fn take<const D: usize>(moments: &mut Moments<B>, parameter: &[usize]) -> Self {
        let [rows, columns] = matrix_shape(parameter);
        Self {
            left: Eigenbasis::take::<D>(moments, LEFT, rows),
            right: Eigenbasis::take::<D>(moments, RIGHT, columns),
        }
    }

    fn put<const D: usize>(self, mut moments: Moments<B>, parameter: &[usize]) -> Moments<B> {
        for (basis, kinds) in [(self.left, LEFT), (self.right, RIGHT)] {
            if let Some(basis) = basis {
                moments = basis.put::<D>(moments, kinds, parameter);
            }
        }
        moments
    }

    /// `Q_Lᵀ x Q_R`.
    fn rotated(&self, mut x: Tensor<B, 2>) -> Tensor<B, 2> {
        if let Some(left) = &self.left {
            x = product(left.vectors.clone().transpose(), x);
        }
        match &self.right {
            Some(right) => product(x, right.vectors.clone()),
            None => x,
        }
    }

    /// `Q_L x Q_Rᵀ`.
    fn rotated_back(&self, mut x: Tensor<B, 2>) -> Tensor<B, 2> {
        if let Some(left) = &self.left {
            x = product(left.vectors.clone(), x);
        }
        match &self.right {
            Some(right) => product(x, right.vectors.clone().transpose()),
            None => x,
        }
    }

    fn with_gradient(self, grad: Tensor<B, 2>, beta: f64) -> Self {
        Self {
            left: self.left.map(|left| left.with(of_rows(&grad), beta)),
            right: self.right.map(|right| right.with(of_columns(&grad), beta)),
        }
    }

    /// New bases, and the second moment in their order.
    fn refined(self, mut second: Tensor<B, 2>) -> (Self, Tensor<B, 2>) {
        let mut refine = |basis: Option<Eigenbasis<B>>, dimension: usize| {
            let (basis, order) = basis?.refined();
            second = second.clone().select(dimension, order);
            Some(basis)
        };
        let bases = Self {
            left: refine(self.left, 0),
            right: refine(self.right, 1),
        };
        (bases, second)
    }
}
