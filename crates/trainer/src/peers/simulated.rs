//! Simulated peers, to measure the memory of one rank in a single process.

use burn::tensor::Device;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;

use super::{Divided, OrderedPeers, Peers, PeersError, Rank, Transport};

/// The numbers that every other rank sends in addition to as many as this one. More than any rank has: one for each
/// chunk of its gradients.
const PADDING: usize = 1 << 16;

/// Rank 0 of several, whose peers send what it sends itself. Allocations and copies are those of a real job without its MPI
/// library; sums have no meaning.
pub(crate) struct SimulatedPeers(OrderedPeers<Echo>);

impl SimulatedPeers {
    /// Rank 0 of `world_size` ranks.
    pub(crate) fn new(world_size: usize) -> Self {
        let rank = Rank::new(0, world_size).unwrap_or(Rank::SINGLE);
        Self(OrderedPeers::new(Echo(rank)))
    }

    fn peers<B: BurnBackend>(&self) -> &dyn Peers<B> {
        &self.0
    }
}

impl<B: BurnBackend> Peers<B> for SimulatedPeers {
    fn rank(&self) -> Rank {
        self.peers::<B>().rank()
    }

    fn sum_counts(&self, counts: &[u64]) -> Result<Vec<u64>, PeersError> {
        self.peers::<B>().sum_counts(counts)
    }

    fn gather_texts(&self, own: &str) -> Result<Vec<String>, PeersError> {
        self.peers::<B>().gather_texts(own)
    }

    fn gather_numbers(&self, own: &[f64]) -> Result<Vec<Vec<f64>>, PeersError> {
        let mut all = self.peers::<B>().gather_numbers(own)?;
        for other in all.iter_mut().skip(1) {
            other.resize(2 * own.len() + PADDING, 0.0);
        }
        Ok(all)
    }

    fn gather_bytes(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, PeersError> {
        self.peers::<B>().gather_bytes(own)
    }

    fn reduce_scatter(
        &self,
        vectors: Vec<Divided<FloatTensor<B>>>,
    ) -> Result<Vec<FloatTensor<B>>, PeersError> {
        self.peers::<B>().reduce_scatter(vectors)
    }

    fn all_gather(
        &self,
        vectors: Vec<Divided<Option<FloatTensor<B>>>>,
        device: &Device<B>,
    ) -> Result<Vec<FloatTensor<B>>, PeersError> {
        self.peers::<B>().all_gather(vectors, device)
    }
}

/// A transport on which every rank sends what this one sends.
struct Echo(Rank);

impl Transport for Echo {
    fn rank(&self) -> Rank {
        self.0
    }

    fn all_to_all(&self, sent: &[f32], received: &mut [f32]) -> Result<(), String> {
        received.copy_from_slice(sent);
        Ok(())
    }

    fn all_gather(&self, own: &[f32], received: &mut [f32]) -> Result<(), String> {
        let slices = received.chunks_exact_mut(own.len().max(1));
        slices.for_each(|slice| slice.copy_from_slice(own));
        Ok(())
    }

    fn all_gather_bytes(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        Ok(vec![own.to_vec(); self.0.world_size()])
    }
}
