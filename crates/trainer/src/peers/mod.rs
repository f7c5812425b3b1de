//! Data-parallel training with several processes.
//!
//! Each of `world_size` processes computes its own micro-batches of a step. Once its gradients are complete,
//! the gradients, the loss and the number of targets are summed over all ranks. Every rank updates its shard of the
//! parameters, for which it holds the optimizer's state (ZeRO-1), and the updated parameters are gathered. Rank 0
//! also logs, samples and saves. [`crate::Training::peers`] trains as one of the processes.
//!
//! [`OrderedPeers`] implements the exchanges over any [`Transport`], with sums in rank order. [`DeviceMemoryPeers`] does so for
//! an [`AddressTransport`], which accesses the memory of devices.

use std::cmp::Ordering;

use burn::tensor::Device;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;

mod device_memory;
mod divided;
pub(crate) mod exchange;
pub(crate) mod gather;
mod host_vectors;
mod ordered;
pub(crate) mod shards;
mod simulated;
mod weights_hash;

pub use device_memory::{AddressTransport, DeviceMemoryPeers};
pub use divided::{Divided, Piece};
pub(crate) use ordered::BUCKET;
pub use ordered::{OrderedPeers, Transport};
pub(crate) use simulated::SimulatedPeers;
pub use weights_hash::weights_hash;

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

    /// The place of the rank `index` among the others in rank order; `None` for this rank.
    pub fn place_of(self, index: usize) -> Option<usize> {
        match index.cmp(&self.index) {
            Ordering::Less => Some(index),
            Ordering::Equal => None,
            Ordering::Greater => Some(index - 1),
        }
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
/// same order, except for [`Peers::all_gather`], which may be called by another thread while others run.
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

    /// The bytes of all ranks, in rank order. Ranks may pass different counts of them.
    ///
    /// # Errors
    /// A peer cannot be reached.
    fn gather_bytes(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, PeersError>;

    /// The elementwise sums over all ranks of this rank's pieces of the vectors, in their order. All ranks pass vectors of the
    /// same lengths with the same pieces.
    ///
    /// # Errors
    /// A peer cannot be reached.
    fn reduce_scatter(
        &self,
        vectors: Vec<Divided<FloatTensor<B>>>,
    ) -> Result<Vec<FloatTensor<B>>, PeersError>;

    /// The whole vectors, on `device`, of which each rank passes its piece, or `None` if it has none.
    ///
    /// # Errors
    /// A peer cannot be reached.
    fn all_gather(
        &self,
        vectors: Vec<Divided<Option<FloatTensor<B>>>>,
        device: &Device<B>,
    ) -> Result<Vec<FloatTensor<B>>, PeersError>;
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

    fn gather_bytes(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, PeersError> {
        Ok(vec![own.to_vec()])
    }

    fn reduce_scatter(
        &self,
        vectors: Vec<Divided<FloatTensor<B>>>,
    ) -> Result<Vec<FloatTensor<B>>, PeersError> {
        Ok(vectors.into_iter().map(|vector| vector.value).collect())
    }

    fn all_gather(
        &self,
        vectors: Vec<Divided<Option<FloatTensor<B>>>>,
        _device: &Device<B>,
    ) -> Result<Vec<FloatTensor<B>>, PeersError> {
        Ok(vectors.into_iter().filter_map(|it| it.value).collect())
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
