//! Cache of the keys and values of processed tokens (or of the state of attentions that have none), so that generating a
//! token computes only one position.

mod format;
mod layer;
mod place;
mod recurrent;
mod retention;
mod saved;
mod tokens;

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Int, Tensor, TensorData};
use emberlm_kernels::Backend;

pub use format::CacheFormat;
pub use layer::LayerCache;
pub(crate) use recurrent::RecurrentState;
pub use retention::ROLLBACK_TOKENS;
pub(crate) use retention::held_tokens;
pub use saved::SavedCache;
pub(crate) use tokens::cached_attention;

/// Cache of all blocks for one batch of sequences of equal length.
#[derive(Clone, Debug)]
pub struct KvCache<B: BurnBackend> {
    pub(crate) layers: Vec<LayerCache<B>>,
    pub(crate) capacity: usize,
}

impl<B: Backend> KvCache<B> {
    /// Number of cached tokens.
    pub fn len(&self) -> usize {
        self.layers.first().map_or(0, LayerCache::len)
    }

    /// Returns true if the cache holds no token.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all tokens; the memory of keys and values stays allocated.
    pub fn clear(&mut self) {
        for layer in &mut self.layers {
            layer.clear();
        }
    }

    /// Maximum number of tokens.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Number of tokens that remain if the cache is truncated to `len` tokens:
    /// - softmax attention: `len`, but at most the number of cached tokens
    /// - linear attention and delta nets, whose states cannot drop a token: all cached tokens or none
    /// - windowed attention: `len`, or none if the window before it is no longer held. At least the newest
    ///   [`ROLLBACK_TOKENS`] can be removed, counted from the greatest length since the cache was cleared.
    pub fn reusable(&self, len: usize) -> usize {
        let each = self.layers.iter();
        each.map(|layer| layer.reusable(len.min(layer.len())))
            .min()
            .unwrap_or(0)
    }

    /// Keeps at most the first `len` tokens, limited by [`KvCache::reusable`]. Returns the number kept.
    pub fn truncate(&mut self, len: usize) -> usize {
        let kept = self.reusable(len);
        for layer in &mut self.layers {
            layer.truncate(kept);
        }
        kept
    }

    /// Replaces the contents, in the same memory, with the first `len` tokens of `other`, a cache for the same model,
    /// format and batch, limited by [`KvCache::reusable`] and the capacity. Returns the number copied.
    pub fn copy_from(&mut self, other: &Self, len: usize) -> usize {
        let copied = other.reusable(len.min(self.capacity));
        for (layer, other) in self.layers.iter_mut().zip(&other.layers) {
            layer.copy_from(other, copied);
        }
        copied
    }

    /// Replaces the batch's sequences by those with the given numbers, in this order; a number may occur several times.
    pub fn select(&mut self, rows: &[usize]) {
        let Some(device) = self.layers.first().and_then(LayerCache::device) else {
            return;
        };
        let rows = row_indices(rows, &device);
        for layer in &mut self.layers {
            layer.select(&rows);
        }
    }

    /// Bytes of the keys and values, or of linear attention's sums once computed.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(LayerCache::bytes).sum()
    }

    /// The cache of block `layer`; `None` if there is no such block.
    pub(crate) fn layer(&mut self, layer: usize) -> Option<&mut LayerCache<B>> {
        self.layers.get_mut(layer)
    }
}

/// Numbers of sequences in a batch, for `select`.
pub(crate) fn row_indices<B: Backend>(rows: &[usize], device: &Device<B>) -> Tensor<B, 1, Int> {
    let rows: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
    let count = rows.len();
    Tensor::from_data(TensorData::new(rows, [count]), device)
}
