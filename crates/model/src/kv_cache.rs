//! What is kept of the tokens seen so far, so that the next one costs one position's work: their keys and values, or
//! linear attention's sums over them.

mod layer;
mod retention;

use burn::tensor::Device;
use burn::tensor::backend::Backend as BurnBackend;
use emberlm_kernels::Backend;

use crate::checked::DecoderConfig;

pub use layer::LayerCache;
pub use retention::ROLLBACK_TOKENS;
pub(crate) use retention::held_tokens;

/// The cache of a whole model for one batch of sequences of equal length.
#[derive(Clone, Debug)]
pub struct KvCache<B: BurnBackend> {
    pub(crate) layers: Vec<LayerCache<B>>,
    pub(crate) capacity: usize,
}

impl<B: Backend> KvCache<B> {
    /// An empty cache with room for `capacity` tokens of each of `batch` sequences, for a model of this configuration.
    ///
    /// Keys and values are allocated at once: for every token, or, in a block with a window, for the tokens in it, its global
    /// tokens and [`ROLLBACK_TOKENS`], rounded up to some hundreds. Linear attention's sums are small and made when they are.
    pub fn new(config: &DecoderConfig, batch: usize, capacity: usize, device: &Device<B>) -> Self {
        config.stack().cache(batch, capacity, device)
    }

    /// Tokens held.
    pub fn len(&self) -> usize {
        self.layers.first().map_or(0, LayerCache::len)
    }

    /// Returns true if nothing is held yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all tokens; the memory of keys and values stays.
    pub fn clear(&mut self) {
        for layer in &mut self.layers {
            layer.clear();
        }
    }

    /// Tokens that fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many of the first `len` tokens can be kept without the rest, at most those in the cache. With a softmax these are all
    /// of them; with linear attention, whose sums cannot forget a token, all tokens or none. A window can lose at least the
    /// newest [`ROLLBACK_TOKENS`] after the longest that the cache has been since it was cleared; where the tokens before those
    /// that are lost are no longer held, none can be kept.
    pub fn reusable(&self, len: usize) -> usize {
        let each = self.layers.iter();
        each.map(|layer| layer.reusable(len.min(layer.len())))
            .min()
            .unwrap_or(0)
    }

    /// Forgets all but the first `len` tokens, and as many more as [`KvCache::reusable`] says; gives how many are held then.
    pub fn truncate(&mut self, len: usize) -> usize {
        let kept = self.reusable(len);
        for layer in &mut self.layers {
            layer.truncate(kept);
        }
        kept
    }

    /// Holds the first `len` tokens of `other`, a cache for the same model and batch, in its own memory in place of what it
    /// held: as many of them as are [`KvCache::reusable`] and fit. Gives how many.
    pub fn copy_from(&mut self, other: &Self, len: usize) -> usize {
        let copied = other.reusable(len.min(self.capacity));
        for (layer, other) in self.layers.iter_mut().zip(&other.layers) {
            layer.copy_from(other, copied);
        }
        copied
    }

    /// The bytes of its keys and values, or of linear attention's sums once there are some.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(LayerCache::bytes).sum()
    }

    /// The cache of block `layer`; none where there is no such block.
    pub(crate) fn layer(&mut self, layer: usize) -> Option<&mut LayerCache<B>> {
        self.layers.get_mut(layer)
    }
}

/// Consecutive rows of one sequence among those of several.
#[derive(Debug)]
pub(crate) struct CachedRows<'a, B: BurnBackend> {
    /// Their number, at least one.
    pub(crate) rows: usize,
    /// A block's cache of the sequence, which the rows continue.
    pub(crate) cache: Option<&'a mut LayerCache<B>>,
}
