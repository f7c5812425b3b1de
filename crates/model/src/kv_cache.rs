//! What is kept of the tokens seen so far, so that the next one costs one position's work: their keys and values, or
//! linear attention's sums over them.

use burn::tensor::{Device, Tensor};

use burn::tensor::backend::Backend as BurnBackend;
use emberlm_kernels::{Backend, LinearAttentionState, ops};

use crate::checked::DecoderConfig;
use crate::config::AttentionKind;

/// The cache of a whole model for one batch of sequences of equal length.
#[derive(Clone, Debug)]
pub struct KvCache<B: BurnBackend> {
    pub(crate) layers: Vec<LayerCache<B>>,
    capacity: usize,
}

impl<B: Backend> KvCache<B> {
    /// An empty cache with room for `capacity` tokens of each of `batch` sequences, for a model of this configuration.
    /// Keys and values are allocated at once; linear attention's sums are small and made when they are.
    pub fn new(config: &DecoderConfig, batch: usize, capacity: usize, device: &Device<B>) -> Self {
        let shape = [batch, config.kv_heads, capacity, config.head_dim];
        let held = || match config.attention {
            AttentionKind::Softmax => Held::KeysAndValues {
                keys: Some(Tensor::zeros(shape, device)),
                values: Some(Tensor::zeros(shape, device)),
            },
            AttentionKind::Linear { .. } => Held::Sums(None),
        };
        let layer = |_| LayerCache {
            held: held(),
            len: 0,
        };
        let layers = (0..config.n_layers).map(layer).collect();
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
}

/// What one block keeps.
#[derive(Clone, Debug)]
pub struct LayerCache<B: BurnBackend> {
    held: Held<B>,
    len: usize,
}

/// By the configuration's kind of attention.
#[derive(Clone, Debug)]
enum Held<B: BurnBackend> {
    /// `[batch, kv_heads, capacity, head_dim]` each.
    KeysAndValues {
        // Taken out while written to: a tensor with one owner is updated in place.
        keys: Option<Tensor<B, 4>>,
        values: Option<Tensor<B, 4>>,
    },
    /// None before the first token.
    Sums(Option<LinearAttentionState<B>>),
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

    fn clear(&mut self) {
        self.len = 0;
        if let Held::Sums(sums) = &mut self.held {
            *sums = None;
        }
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
        let Held::KeysAndValues {
            keys: held_keys,
            values: held_values,
        } = &mut self.held
        else {
            // Linear attention never asks: its sums are all that is held.
            return (keys, values);
        };
        (
            write(held_keys, keys, start, end),
            write(held_values, values, start, end),
        )
    }

    /// Takes the sums out, for [`LayerCache::put_sums`] to put them back with more tokens in them.
    pub(crate) fn take_sums(&mut self) -> Option<LinearAttentionState<B>> {
        match &mut self.held {
            Held::Sums(sums) => sums.take(),
            Held::KeysAndValues { .. } => None,
        }
    }

    /// The sums after `seq` more tokens.
    pub(crate) fn put_sums(&mut self, sums: Option<LinearAttentionState<B>>, seq: usize) {
        self.held = Held::Sums(sums);
        self.len += seq;
    }
}

/// Writes `new` at the positions from `start` to `end` and gives those up to `end`.
fn write<B: Backend>(
    held: &mut Option<Tensor<B, 4>>,
    new: Tensor<B, 4>,
    start: usize,
    end: usize,
) -> Tensor<B, 4> {
    let all = match held.take() {
        Some(all) => ops::write_tokens(all, new, start),
        None => new,
    };
    let seen = all.clone().narrow(2, 0, end);
    *held = Some(all);
    seen
}
