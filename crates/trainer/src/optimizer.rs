//! Gradients into updates: AdamW, Muon or Lion over a module's parameters, what they carry kept by parameter path.
//!
//! Map: `groups` says which group a parameter is in, `rule` what its group and the run's settings make of an update,
//! `adamw`, `muon` and `lion` are the updates, `state` is what goes into a checkpoint and comes back.

mod adamw;
mod groups;
mod lion;
mod muon;
mod rule;
mod state;

use std::collections::HashMap;

use burn::module::{AutodiffModule, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::backend::{AutodiffBackend, Backend as BurnBackend};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, Tensor, TensorPrimitive};

use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::weights::{HostTensor, ParamMapper, map_params};

use crate::config::{OptimizerKind, TrainConfig};
pub use groups::ParameterGroup;
use muon::FusedMaps;
use rule::{Rule, Settings};
pub use state::Snapshot;

/// The optimizer of a run, as its settings have it, with what it carries from one update to the next.
pub struct Optimizer<B: BurnBackend> {
    settings: Settings,
    /// Updates made.
    updates: u64,
    moments: HashMap<String, Moments<B>>,
}

/// What an update of a parameter needs of the earlier ones; each tensor has the parameter's shape.
enum Moments<B: BurnBackend> {
    /// AdamW's running means of the gradient and of its square.
    Two {
        first: FloatTensor<B>,
        second: FloatTensor<B>,
    },
    /// Muon's and Lion's running mean of the gradient.
    One(FloatTensor<B>),
}

impl<B: Backend> Optimizer<B> {
    /// An optimizer that has made no update.
    pub fn new(config: &TrainConfig) -> Self {
        Self {
            settings: Settings::of(config),
            updates: 0,
            moments: HashMap::new(),
        }
    }

    /// Updates made.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Updates every parameter that has a gradient, each gradient first multiplied by `factor` `[1]`. `rate` is the
    /// step's, before the groups' factors.
    pub fn update<A, M>(
        &mut self,
        module: M,
        grads: GradientsParams,
        factor: Option<Tensor<B, 1>>,
        rate: f64,
    ) -> M
    where
        A: TrainingBackend + AutodiffBackend<InnerBackend = B>,
        M: AutodiffModule<A>,
    {
        self.updates += 1;
        // Only Muon looks at them.
        let fused = match self.settings.kind() {
            OptimizerKind::Muon => FusedMaps::of::<A, M>(&module),
            OptimizerKind::AdamW | OptimizerKind::Lion => FusedMaps::default(),
        };
        let mut update = Update {
            optimizer: self,
            grads,
            factor,
            rate,
            fused,
        };
        map_params::<A, M>(module, &mut update)
    }

    /// What the next update needs of the earlier ones: handles, not copies, so that another thread can write it.
    pub fn snapshot(&self) -> Snapshot<B> {
        Snapshot::of(self.updates, &self.moments)
    }

    /// Takes up where a snapshot was taken, from its tensors by name.
    ///
    /// # Errors
    /// A tensor is not what this optimizer carries of its parameter, or one of a pair is missing: its name.
    pub fn restore(
        &mut self,
        updates: u64,
        tensors: impl IntoIterator<Item = (String, HostTensor)>,
        device: &Device<B>,
    ) -> Result<(), String> {
        self.moments = state::restored(&self.settings, tensors, device)?;
        self.updates = updates;
        Ok(())
    }
}

struct Update<'a, B: BurnBackend> {
    optimizer: &'a mut Optimizer<B>,
    grads: GradientsParams,
    factor: Option<Tensor<B, 1>>,
    rate: f64,
    fused: FusedMaps,
}

impl<B, A> ParamMapper<A> for Update<'_, B>
where
    B: Backend,
    A: TrainingBackend + AutodiffBackend<InnerBackend = B>,
{
    fn map<const D: usize>(
        &mut self,
        path: &str,
        id: ParamId,
        value: Tensor<A, D>,
    ) -> Tensor<A, D> {
        let Some(grad) = self.grads.remove::<B, D>(id) else {
            return value;
        };
        let factor = self.factor.clone();
        let optimizer = &mut *self.optimizer;
        let moments = optimizer.moments.remove(path);
        let (updated, moments) = match optimizer.settings.rule(path, D) {
            Rule::AdamW(step) => {
                let step = step.at(self.rate, optimizer.updates);
                adamw::update(value.inner(), grad, moments, factor, step)
            }
            Rule::Muon(step) => {
                let parts = self.fused.parts(path);
                let grad = clipped(grad, factor);
                muon::update(value.inner(), grad, moments, self.rate, step, parts)
            }
            Rule::Lion(step) => {
                let grad = clipped(grad, factor);
                lion::update(value.inner(), grad, moments, self.rate, step)
            }
        };
        optimizer.moments.insert(path.to_owned(), moments);
        Tensor::from_inner(updated).require_grad()
    }
}

/// A gradient times what clipping has it multiplied with.
fn clipped<B: BurnBackend, const D: usize>(
    grad: Tensor<B, D>,
    factor: Option<Tensor<B, 1>>,
) -> Tensor<B, D> {
    match factor {
        Some(factor) => grad * factor.unsqueeze::<D>(),
        None => grad,
    }
}

impl<B: BurnBackend> Moments<B> {
    fn two<const D: usize>(first: Tensor<B, D>, second: Tensor<B, D>) -> Self {
        Self::Two {
            first: primitive(first),
            second: primitive(second),
        }
    }

    fn one<const D: usize>(mean: Tensor<B, D>) -> Self {
        Self::One(primitive(mean))
    }

    /// The one running mean that is carried of a parameter with this gradient; zeros before the first update.
    fn mean_or_zeros<const D: usize>(moments: Option<Self>, grad: &Tensor<B, D>) -> Tensor<B, D> {
        match moments {
            Some(Self::One(mean)) => typed(mean),
            Some(Self::Two { .. }) | None => grad.zeros_like(),
        }
    }
}

fn typed<B: BurnBackend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

fn primitive<B: BurnBackend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}
