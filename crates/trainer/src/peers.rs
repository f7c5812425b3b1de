//! The processes that train one model together.
//!
//! Each of `world_size` processes computes its own micro-batches of a step. The gradients, the loss and the number of
//! targets are summed over all ranks where the gradients are complete, so that every rank makes the same update. Rank 0 also
//! logs, evaluates, samples and saves. [`crate::train_as_peer`] trains as one of the processes.

use burn::module::{Module, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorPrimitive};
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::weights::{ParamVisitor, visit_params};

/// A process among those that train one model, by its number from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    index: usize,
    world_size: usize,
}

impl Rank {
    /// The rank of the only process.
    pub const SINGLE: Self = Self {
        index: 0,
        world_size: 1,
    };

    /// Rank `index` of `world_size` processes; `None` unless `index` is below `world_size`.
    pub fn new(index: usize, world_size: usize) -> Option<Self> {
        (index < world_size).then_some(Self { index, world_size })
    }

    /// The number of this process.
    pub fn index(self) -> usize {
        self.index
    }

    /// The number of processes.
    pub fn world_size(self) -> usize {
        self.world_size
    }

    /// Returns true for the process that logs, evaluates, samples and saves.
    pub fn is_zero(self) -> bool {
        self.index == 0
    }

    /// The number among all ranks' micro-batches of this rank's micro-batch `own`. Ranks take micro-batches alternately, so
    /// that `n` ranks with `a` micro-batches each compute the step of one process with `n · a`.
    pub fn micro_batch(self, own: u64) -> u64 {
        own * self.world_size as u64 + self.index as u64
    }
}

/// An exchange between the processes failed.
#[derive(Debug, thiserror::Error)]
#[error("rank {} of {} cannot exchange {what} with its peers: {reason}", rank.index(), rank.world_size())]
pub struct PeersError {
    /// The process that reports it.
    pub rank: Rank,
    /// The values that were exchanged: gradients or target counts.
    pub what: &'static str,
    /// The reason.
    pub reason: String,
}

/// Exchange between the processes that train one model. All ranks call each function in the same order.
pub trait Peers<B: BurnBackend>: Send + Sync {
    /// The rank of this process.
    fn rank(&self) -> Rank;

    /// The sum of a count over all ranks.
    ///
    /// # Errors
    /// A peer cannot be reached.
    fn sum_count(&self, count: usize) -> Result<usize, PeersError>;

    /// The sum over all ranks of each of `tensors`, which have the same shapes in the same order on all ranks.
    ///
    /// # Errors
    /// A peer cannot be reached.
    fn sum_tensors(&self, tensors: Vec<FloatTensor<B>>) -> Result<Vec<FloatTensor<B>>, PeersError>;
}

/// The only process: every sum over all ranks is its own value.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleProcess;

impl<B: BurnBackend> Peers<B> for SingleProcess {
    fn rank(&self) -> Rank {
        Rank::SINGLE
    }

    fn sum_count(&self, count: usize) -> Result<usize, PeersError> {
        Ok(count)
    }

    fn sum_tensors(&self, tensors: Vec<FloatTensor<B>>) -> Result<Vec<FloatTensor<B>>, PeersError> {
        Ok(tensors)
    }
}

/// The sums of a loss `[1]` and of all gradients over all ranks. One call to the peers exchanges all of them, in the order
/// of the module's parameters.
pub(crate) fn all_reduce<B: TrainingBackend, M: Module<B>>(
    peers: &dyn Peers<B::InnerBackend>,
    module: &M,
    loss: Tensor<B::InnerBackend, 1>,
    mut grads: GradientsParams,
) -> Result<(Tensor<B::InnerBackend, 1>, GradientsParams), PeersError> {
    if peers.rank().world_size() == 1 {
        return Ok((loss, grads));
    }
    let mut taken = TakeGradients::<B> {
        grads: &mut grads,
        tensors: vec![primitive(loss)],
    };
    visit_params(module, &mut taken);
    let count = taken.tensors.len();
    let sums = peers.sum_tensors(taken.tensors)?;
    let wrong = PeersError {
        rank: peers.rank(),
        what: "gradients",
        reason: format!("{} tensors came back for {count}", sums.len()),
    };
    let complete = sums.len() == count;
    let mut sums = sums.into_iter();
    let Some(loss) = sums.next().filter(|_| complete) else {
        return Err(wrong);
    };
    let mut put = PutGradients::<B> {
        sums,
        grads: GradientsParams::new(),
    };
    visit_params(module, &mut put);
    Ok((typed(loss), put.grads))
}

struct TakeGradients<'a, B: TrainingBackend> {
    grads: &'a mut GradientsParams,
    tensors: Vec<FloatTensor<B::InnerBackend>>,
}

impl<B: TrainingBackend> ParamVisitor<B> for TakeGradients<'_, B> {
    fn visit<const D: usize>(&mut self, _path: &str, id: ParamId, value: Tensor<B, D>) {
        let grad = self.grads.remove::<B::InnerBackend, D>(id);
        // Ranks may have learned from different parameters, but they exchange the same tensors.
        let grad = grad.unwrap_or_else(|| value.inner().zeros_like());
        self.tensors.push(primitive(grad));
    }
}

struct PutGradients<B: TrainingBackend> {
    sums: std::vec::IntoIter<FloatTensor<B::InnerBackend>>,
    grads: GradientsParams,
}

impl<B: TrainingBackend> ParamVisitor<B> for PutGradients<B> {
    fn visit<const D: usize>(&mut self, _path: &str, id: ParamId, _value: Tensor<B, D>) {
        if let Some(sum) = self.sums.next() {
            self.grads.register(id, typed::<B::InnerBackend, D>(sum));
        }
    }
}

fn primitive<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}

fn typed<B: Backend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}
