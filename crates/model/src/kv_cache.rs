//! Keys and values of the tokens seen so far, so that the next token costs one position's work.

use burn::tensor::{Device, Tensor};

use burn::tensor::backend::Backend as BurnBackend;
use emberlm_kernels::Backend;

use crate::checked::DecoderConfig;

/// The cache of a whole model for one batch of sequences of equal length.
#[derive(Clone, Debug)]
pub struct KvCache<B: BurnBackend> {
    pub(crate) layers: Vec<LayerCache<B>>,
    capacity: usize,
}

impl<B: Backend> KvCache<B> {
    /// An empty cache with room for `capacity` tokens of each of `batch` sequences, allocated at once.
    pub fn new(config: &DecoderConfig, batch: usize, capacity: usize, device: &Device<B>) -> Self {
        let shape = [batch, config.kv_heads, capacity, config.head_dim];
        let layers = (0..config.n_layers)
            .map(|_| LayerCache {
                keys: Some(Tensor::zeros(shape, device)),
                values: Some(Tensor::zeros(shape, device)),
                len: 0,
            })
            .collect();
        Self { layers, capacity }
    }

    /// Tokens held.
    pub fn len(&self) -> usize {
        self.layers.first().map_or(0, LayerCache::len)
    }

    /// Whether nothing is held yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all tokens; the memory stays.
    pub fn clear(&mut self) {
        for layer in &mut self.layers {
            layer.len = 0;
        }
    }

    /// Tokens that fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

/// One block's keys and values, `[batch, kv_heads, capacity, head_dim]`.
#[derive(Clone, Debug)]
pub struct LayerCache<B: BurnBackend> {
    // Taken out while written to: a tensor with one owner is updated in place.
    keys: Option<Tensor<B, 4>>,
    values: Option<Tensor<B, 4>>,
    len: usize,
}

impl<B: Backend> LayerCache<B> {
    /// Tokens held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is held yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds keys and values `[batch, kv_heads, seq, head_dim]` and gives all that is held.
    pub(crate) fn append(
        &mut self,
        keys: Tensor<B, 4>,
        values: Tensor<B, 4>,
    ) -> (Tensor<B, 4>, Tensor<B, 4>) {
        let seq = keys.dims()[2];
        let (start, end) = (self.len, self.len + seq);
        self.len = end;
        (
            write(&mut self.keys, keys, start, end),
            write(&mut self.values, values, start, end),
        )
    }
}

/// Writes `new` at the positions from `start` to `end` and gives those up to `end`.
fn write<B: Backend>(
    held: &mut Option<Tensor<B, 4>>,
    new: Tensor<B, 4>,
    start: usize,
    end: usize,
) -> Tensor<B, 4> {
    let [batch, heads, _, head_dim] = new.dims();
    let all = match held.take() {
        Some(all) => all.slice_assign([0..batch, 0..heads, start..end, 0..head_dim], new),
        None => new,
    };
    let seen = all.clone().narrow(2, 0, end);
    *held = Some(all);
    seen
}
