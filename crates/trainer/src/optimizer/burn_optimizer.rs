//! Burn's `Optimizer` trait for this crate's optimizer, for use with Burn's learners and any training loop over a Burn
//! module. Parameters are updated in place, and the state is stored by parameter path.

use std::collections::{BTreeMap, HashMap};

use burn::module::AutodiffModule;
use burn::optim::{GradientsParams, LearningRate, MultiGradientsParams};
use burn::record::{PrecisionSettings, Record};
use burn::tensor::backend::{AutodiffBackend, Backend as BurnBackend};
use burn::tensor::ops::FloatTensorOps;
use burn::tensor::{Device, TensorData};
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::weights::{DeviceTensor, HostTensor};
use serde::{Deserialize, Serialize};

use super::state::StateKind;
use super::{Moments, Optimizer};

impl<B, A, M> burn::optim::Optimizer<M, A> for Optimizer<B>
where
    B: Backend,
    A: TrainingBackend + AutodiffBackend<InnerBackend = B>,
    M: AutodiffModule<A>,
{
    type Record = OptimizerRecord<B>;

    fn step(&mut self, lr: LearningRate, module: M, grads: GradientsParams) -> M {
        self.mapped::<A, M>(module, grads.into(), None, lr, None)
    }

    fn step_multi(&mut self, lr: LearningRate, module: M, grads: MultiGradientsParams) -> M {
        self.mapped::<A, M>(module, grads.into(), None, lr, None)
    }

    fn to_record(&self) -> OptimizerRecord<B> {
        OptimizerRecord {
            updates: self.updates,
            moments: self.moments.clone(),
        }
    }

    fn load_record(self, record: OptimizerRecord<B>) -> Self {
        Self {
            updates: record.updates,
            moments: record.moments,
            ..self
        }
    }
}

/// The optimizer's state for Burn's recorders: the number of updates, and moments by parameter path. Unlike a
/// parameter's id, its path is the same in every process.
#[derive(Clone)]
pub struct OptimizerRecord<B: BurnBackend> {
    updates: u64,
    moments: HashMap<String, Moments<B>>,
}

/// [`OptimizerRecord`] as it is serialized.
#[derive(Clone, Serialize, Deserialize)]
pub struct OptimizerRecordItem {
    updates: u64,
    /// The tensors of each parameter by the ends of their names in checkpoints.
    moments: BTreeMap<String, BTreeMap<String, TensorData>>,
}

impl<A: AutodiffBackend> Record<A> for OptimizerRecord<A::InnerBackend> {
    type Item<S: PrecisionSettings> = OptimizerRecordItem;

    fn into_item<S: PrecisionSettings>(self) -> OptimizerRecordItem {
        let data = |tensor| {
            let HostTensor { shape, values } =
                DeviceTensor::<A::InnerBackend>::new(tensor).on_host();
            TensorData::new(values, shape).convert::<S::FloatElem>()
        };
        let tensors = |moments: Moments<A::InnerBackend>| {
            let tensors = moments.into_iter();
            tensors
                .map(|(kind, tensor)| (kind.suffix().to_owned(), data(tensor)))
                .collect()
        };
        let moments = self.moments.into_iter();
        OptimizerRecordItem {
            updates: self.updates,
            moments: moments
                .map(|(path, moments)| (path, tensors(moments)))
                .collect(),
        }
    }

    fn from_item<S: PrecisionSettings>(item: OptimizerRecordItem, device: &Device<A>) -> Self {
        let tensor = |data: TensorData| {
            A::InnerBackend::float_from_data(data.convert::<A::FloatElem>(), device)
        };
        let moments = |tensors: BTreeMap<String, TensorData>| {
            let tensors = tensors.into_iter();
            let known =
                tensors.filter_map(|(end, data)| Some((StateKind::of_end(&end)?, tensor(data))));
            known.collect()
        };
        let items = item.moments.into_iter();
        Self {
            updates: item.updates,
            moments: items
                .map(|(path, tensors)| (path, moments(tensors)))
                .collect(),
        }
    }
}
