//! Data-parallel training with several processes.
//!
//! Each of `world_size` processes computes its own micro-batches of a step. Once its gradients are complete,
//! the gradients, the loss and the number of targets are summed over all ranks, so every rank makes the same
//! update. Rank 0 also logs, evaluates, samples and saves. [`crate::train_as_peer`] trains as one of the
//! processes.
//!
//! [`OrderedPeers`] implements the sums over any [`Transport`], in rank order.

use burn::module::{Module, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorPrimitive};
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::weights::{ParamVisitor, visit_params};

pub(crate) mod agreement;
mod ordered;

pub use agreement::weights_hash;
pub use ordered::{OrderedPeers, Transport};

/// The index of one of the processes that train a model together, and their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    index: usize,
    world_size: usize,
}

impl Rank {
    /// The rank of a single process.
    pub const SINGLE: Self = Self {
        index: 0,
        world_size: 1,
    };

    /// Rank `index` of `world_size` processes; `None` unless `index` is below `world_size`.
    pub fn new(index: usize, world_size: usize) -> Option<Self> {
        (index < world_size).then_some(Self { index, world_size })
    }

    /// The index of this process, from 0.
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

    /// The index among all ranks' micro-batches of this rank's micro-batch `own`. Micro-batches are
    /// interleaved over ranks, so `n` ranks with `a` micro-batches each compute the same step as one process
    /// with `n · a`.
    pub fn micro_batch(self, own: u64) -> u64 {
        own * self.world_size as u64 + self.index as u64
    }
}

/// A collective operation between the processes failed.
#[derive(Debug, thiserror::Error)]
#[error("rank {} of {} cannot exchange {what} with its peers: {reason}", rank.index(), rank.world_size())]
pub struct PeersError {
    /// The process that reports the error.
    pub rank: Rank,
    /// The exchanged values, such as gradients or counts.
    pub what: &'static str,
    /// The reason.
    pub reason: String,
}

/// Collective operations between the processes that train one model. All ranks must call the functions in the
/// same order.
pub trait Peers<B: BurnBackend>: Send + Sync {
    /// The rank of this process.
    fn rank(&self) -> Rank;

    /// The sum of each count over all ranks, which pass equally many counts.
    ///
    /// # Errors
    /// A peer cannot be reached.
    fn sum_counts(&self, counts: &[u64]) -> Result<Vec<u64>, PeersError>;

    /// The texts of all ranks, in rank order.
    ///
    /// # Errors
    /// A peer cannot be reached.
    fn gather_texts(&self, own: &str) -> Result<Vec<String>, PeersError>;

    /// The numbers of all ranks, in rank order. Ranks may pass different counts of them.
    ///
    /// # Errors
    /// A peer cannot be reached.
    fn gather_numbers(&self, own: &[f64]) -> Result<Vec<Vec<f64>>, PeersError>;

    /// The elementwise sum of `tensors` over all ranks. The tensors have the same shapes, in the same order,
    /// on all ranks.
    ///
    /// # Errors
    /// A peer cannot be reached.
    fn sum_tensors(&self, tensors: Vec<FloatTensor<B>>) -> Result<Vec<FloatTensor<B>>, PeersError>;
}

/// A single process: every sum is the process's own value.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleProcess;

impl<B: BurnBackend> Peers<B> for SingleProcess {
    fn rank(&self) -> Rank {
        Rank::SINGLE
    }

    fn sum_counts(&self, counts: &[u64]) -> Result<Vec<u64>, PeersError> {
        Ok(counts.to_vec())
    }

    fn gather_texts(&self, own: &str) -> Result<Vec<String>, PeersError> {
        Ok(vec![own.to_owned()])
    }

    fn gather_numbers(&self, own: &[f64]) -> Result<Vec<Vec<f64>>, PeersError> {
        Ok(vec![own.to_vec()])
    }

    fn sum_tensors(&self, tensors: Vec<FloatTensor<B>>) -> Result<Vec<FloatTensor<B>>, PeersError> {
        Ok(tensors)
    }
}

/// The sum of one count over all ranks.
pub(crate) fn sum_count<B: BurnBackend>(
    peers: &dyn Peers<B>,
    count: usize,
) -> Result<usize, PeersError> {
    let sums = peers.sum_counts(&[count as u64])?;
    Ok(sums.first().map_or(0, |&sum| sum as usize))
}

/// Sums a loss `[1]` and all gradients over all ranks, in one call to the peers. The gradients are in the
/// order of the module's parameters. Parameters without a gradient on any rank, such as frozen ones, are not
/// exchanged.
pub(crate) fn all_reduce<B: TrainingBackend, M: Module<B>>(
    peers: &dyn Peers<B::InnerBackend>,
    module: &M,
    loss: Tensor<B::InnerBackend, 1>,
    mut grads: GradientsParams,
) -> Result<(Tensor<B::InnerBackend, 1>, GradientsParams), PeersError> {
    if peers.rank().world_size() == 1 {
        return Ok((loss, grads));
    }
    let mut found = FindGradients {
        grads: &grads,
        present: Vec::new(),
    };
    visit_params(module, &mut found);
    let exchanged: Vec<bool> = peers
        .sum_counts(&found.present)?
        .iter()
        .map(|&ranks| ranks > 0)
        .collect();
    let mut taken = TakeGradients::<B> {
        grads: &mut grads,
        exchanged: exchanged.iter(),
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
        exchanged: exchanged.iter(),
        grads: GradientsParams::new(),
    };
    visit_params(module, &mut put);
    Ok((typed(loss), put.grads))
}

/// Counts the gradients of each parameter on this rank: 0 or 1.
struct FindGradients<'a> {
    grads: &'a GradientsParams,
    present: Vec<u64>,
}

impl<B: TrainingBackend> ParamVisitor<B> for FindGradients<'_> {
    fn visit<const D: usize>(&mut self, _path: &str, id: ParamId, _value: Tensor<B, D>) {
        let grad = self.grads.get::<B::InnerBackend, D>(id);
        self.present.push(u64::from(grad.is_some()));
    }
}

struct TakeGradients<'a, B: TrainingBackend> {
    grads: &'a mut GradientsParams,
    exchanged: std::slice::Iter<'a, bool>,
    tensors: Vec<FloatTensor<B::InnerBackend>>,
}

impl<B: TrainingBackend> ParamVisitor<B> for TakeGradients<'_, B> {
    fn visit<const D: usize>(&mut self, _path: &str, id: ParamId, value: Tensor<B, D>) {
        if self.exchanged.next() != Some(&true) {
            return;
        }
        let grad = self.grads.remove::<B::InnerBackend, D>(id);
        // Ranks may have gradients for different parameters, but all must exchange the same tensors. Adding
        // -0 leaves every value as it is, while adding +0 would change -0.
        let grad = grad.unwrap_or_else(|| value.inner().full_like(-0.0));
        self.tensors.push(primitive(grad));
    }
}

struct PutGradients<'a, B: TrainingBackend> {
    sums: std::vec::IntoIter<FloatTensor<B::InnerBackend>>,
    exchanged: std::slice::Iter<'a, bool>,
    grads: GradientsParams,
}

impl<B: TrainingBackend> ParamVisitor<B> for PutGradients<'_, B> {
    fn visit<const D: usize>(&mut self, _path: &str, id: ParamId, _value: Tensor<B, D>) {
        if self.exchanged.next() != Some(&true) {
            return;
        }
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
