//! AdamW over a module's parameters, its moments kept by parameter path.

use std::collections::HashMap;

use burn::module::{AutodiffModule, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::backend::{AutodiffBackend, Backend as BurnBackend};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, Shape, Tensor, TensorData, TensorMetadata, TensorPrimitive};

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

    /// What the next update needs of the earlier ones: handles, not copies, so that another thread can write it.
    pub fn snapshot(&self) -> Snapshot<B> {
        let mut tensors = Vec::with_capacity(2 * self.moments.len());
        for (path, moments) in &self.moments {
            tensors.push((format!("{path}{FIRST}"), moments.first.clone()));
            tensors.push((format!("{path}{SECOND}"), moments.second.clone()));
        }
        tensors.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Snapshot {
            updates: self.step,
            tensors,
        }
    }

    /// Takes up where a snapshot was taken, from its tensors by name.
    ///
    /// # Errors
    /// A tensor is of no moment, or the other moment of its parameter is missing: its name.
    pub fn restore(
        &mut self,
        updates: u64,
        tensors: impl IntoIterator<Item = (String, HostTensor)>,
        device: &Device<B>,
    ) -> Result<(), String> {
        let mut tensors: HashMap<String, HostTensor> = tensors.into_iter().collect();
        let firsts = tensors.keys().filter_map(|name| name.strip_suffix(FIRST));
        let paths: Vec<String> = firsts.map(str::to_owned).collect();
        self.moments.clear();
        for path in paths {
            let mut take = |suffix| {
                let name = format!("{path}{suffix}");
                tensors.remove(&name).ok_or(name)
            };
            let moments = Moments {
                first: on_device::<B>(take(FIRST)?, device),
                second: on_device::<B>(take(SECOND)?, device),
            };
            self.moments.insert(path, moments);
        }
        self.step = updates;
        tensors.into_keys().next().map_or(Ok(()), Err)
    }
}

const FIRST: &str = ".moment1";
const SECOND: &str = ".moment2";

/// What an optimizer carries from one update to the next.
#[derive(Clone)]
pub struct Snapshot<B: BurnBackend> {
    /// Updates made.
    pub updates: u64,
    tensors: Vec<(String, FloatTensor<B>)>,
}

impl<B: BurnBackend> Snapshot<B> {
    /// Its tensors on the host, in the order of their names: `PATH.moment1` and `PATH.moment2`.
    pub fn on_host(&self) -> Vec<(String, HostTensor)> {
        let tensors = self.tensors.iter();
        tensors
            .map(|(name, tensor)| (name.clone(), on_host::<B>(tensor)))
            .collect()
    }
}

fn on_host<B: BurnBackend>(tensor: &FloatTensor<B>) -> HostTensor {
    let shape = tensor.shape();
    let count = shape.num_elements();
    let flat = B::float_reshape(tensor.clone(), Shape::new([count]));
    let flat = Tensor::<B, 1>::from_primitive(TensorPrimitive::Float(flat));
    HostTensor {
        shape: shape.to_vec(),
        values: flat.into_data().iter::<f32>().collect(),
    }
}

fn on_device<B: BurnBackend>(tensor: HostTensor, device: &Device<B>) -> FloatTensor<B> {
    B::float_from_data(TensorData::new(tensor.values, tensor.shape), device)
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
