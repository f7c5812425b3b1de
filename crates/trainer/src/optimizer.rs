//! AdamW over a module's parameters, its moments kept by parameter path.

use std::collections::HashMap;

use burn::module::{AutodiffModule, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::backend::{AutodiffBackend, Backend as BurnBackend};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorPrimitive};

use emberlm_kernels::{AdamWStep, Backend, TrainingBackend, ops};
use emberlm_model::weights::{HostTensor, ParamMapper, map_params};

use crate::config::TrainConfig;

/// AdamW (Loshchilov and Hutter 2019) with decay on matrices only: gains, biases and other vectors are not decayed.
pub struct AdamW<B: BurnBackend> {
    beta1: f64,
    beta2: f64,
    epsilon: f64,
    decay: f64,
    /// Updates made.
    step: u64,
    moments: HashMap<String, Moments<B>>,
}

/// The running means of a parameter's gradient and of its square, of the parameter's shape.
struct Moments<B: BurnBackend> {
    first: FloatTensor<B>,
    second: FloatTensor<B>,
}

impl<B: Backend> AdamW<B> {
    /// An optimizer that has made no update.
    pub fn new(config: &TrainConfig) -> Self {
        Self {
            beta1: config.beta1,
            beta2: config.beta2,
            epsilon: config.epsilon,
            decay: config.weight_decay,
            step: 0,
            moments: HashMap::new(),
        }
    }

    /// Updates every parameter that has a gradient, each gradient first multiplied by `factor` `[1]`.
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
        self.step += 1;
        let mut update = Update {
            optimizer: self,
            grads,
            factor,
            rate,
        };
        map_params::<A, M>(module, &mut update)
    }

    /// The moments on the host: `PATH.moment1` and `PATH.moment2`, in the order of paths.
    pub fn state(&self) -> Vec<(String, HostTensor)> {
        let mut paths: Vec<&String> = self.moments.keys().collect();
        paths.sort_unstable();
        let mut state = Vec::with_capacity(2 * paths.len());
        for path in paths {
            let moments = &self.moments[path];
            state.push((format!("{path}.moment1"), on_host::<B>(&moments.first)));
            state.push((format!("{path}.moment2"), on_host::<B>(&moments.second)));
        }
        state
    }
}

fn on_host<B: BurnBackend>(tensor: &FloatTensor<B>) -> HostTensor {
    use burn::tensor::TensorMetadata;
    let shape = tensor.shape();
    let count = shape.num_elements();
    let flat = B::float_reshape(tensor.clone(), burn::tensor::Shape::new([count]));
    let flat = Tensor::<B, 1>::from_primitive(TensorPrimitive::Float(flat));
    HostTensor {
        shape: shape.to_vec(),
        values: flat.into_data().iter::<f32>().collect(),
    }
}

struct Update<'a, B: BurnBackend> {
    optimizer: &'a mut AdamW<B>,
    grads: GradientsParams,
    factor: Option<Tensor<B, 1>>,
    rate: f64,
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
        let grad = match &self.factor {
            Some(factor) => grad * factor.clone().unsqueeze::<D>(),
            None => grad,
        };
        let optimizer = &mut *self.optimizer;
        let (first, second) = match optimizer.moments.remove(path) {
            Some(moments) => (typed(moments.first), typed(moments.second)),
            None => (grad.zeros_like(), grad.zeros_like()),
        };
        let step = AdamWStep {
            rate: self.rate,
            beta1: optimizer.beta1,
            beta2: optimizer.beta2,
            epsilon: optimizer.epsilon,
            decay: if D >= 2 { optimizer.decay } else { 0.0 },
            step: optimizer.step,
        };
        let (updated, (first, second)) = ops::adamw(value.inner(), grad, (first, second), step);
        let moments = Moments {
            first: first.into_primitive().tensor(),
            second: second.into_primitive().tensor(),
        };
        optimizer.moments.insert(path.to_owned(), moments);
        Tensor::from_inner(updated).require_grad()
    }
}

fn typed<B: BurnBackend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}
