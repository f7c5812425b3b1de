//! What is kept of the tokens seen so far, so that the next one costs one position's work: their keys and values, or
//! linear attention's sums over them.

use burn::tensor::{Device, Tensor};

use burn::tensor::backend::Backend as BurnBackend;
use emberlm_kernels::{Backend, LinearAttentionState, ops};

use crate::attention::Mechanism;
use crate::checked::DecoderConfig;

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
        let held = |layer| match config.attention_of(layer).mechanism {
            Mechanism::Softmax { .. } => Held::KeysAndValues {
                keys: Some(Tensor::zeros(shape, device)),
                values: Some(Tensor::zeros(shape, device)),
            },
            Mechanism::Linear { .. } => Held::Sums(None),
        };
        let layer = |layer| LayerCache {
            held: held(layer),
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

    /// How many of the first `len` tokens can be kept without the rest, at most those that are held: with a softmax all of
    /// them; with linear attention, whose sums cannot forget a token, all that is held or none.
    pub fn reusable(&self, len: usize) -> usize {
        self.layers
            .first()
            .map_or(0, |layer| layer.reusable(len.min(layer.len)))
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

    /// What block `layer` keeps; none where there is no such block.
    pub(crate) fn layer(&mut self, layer: usize) -> Option<&mut LayerCache<B>> {
        self.layers.get_mut(layer)
    }
}

/// Consecutive rows of one sequence among those of several.
#[derive(Debug)]
pub(crate) struct CachedRows<'a, B: BurnBackend> {
    /// How many, at least one.
    pub(crate) rows: usize,
    /// A block's cache of the sequence, which the rows continue.
    pub(crate) cache: Option<&'a mut LayerCache<B>>,
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
        self.truncate(0);
    }

    /// See [`KvCache::reusable`]; `len` is at most the cache's.
    fn reusable(&self, len: usize) -> usize {
        match self.held {
            Held::Sums(_) if len < self.len => 0,
            Held::Sums(_) | Held::KeysAndValues { .. } => len,
        }
    }

    /// To a length that is reusable.
    fn truncate(&mut self, len: usize) {
        if let Held::Sums(sums) = &mut self.held
            && len == 0
        {
            *sums = None;
        }
        self.len = len;
    }

    /// The first `len` tokens of another, as many as are reusable there.
    fn copy_from(&mut self, other: &Self, len: usize) {
        self.truncate(0);
        match (&mut self.held, &other.held) {
            (Held::Sums(sums), Held::Sums(others)) if len > 0 => sums.clone_from(others),
            (
                Held::KeysAndValues { keys, values },
                Held::KeysAndValues {
                    keys: other_keys,
                    values: other_values,
                },
            ) if len > 0 => {
                let pairs = [(keys, other_keys), (values, other_values)];
                for (held, other) in pairs {
                    if let Some(other) = other {
                        write(held, other.clone().narrow(2, 0, len), 0, len);
                    }
                }
            }
            _ => {}
        }
        self.len = len;
    }

    fn bytes(&self) -> usize {
        let of = |tensor: &Tensor<B, 4>| tensor.shape().num_elements() * tensor.dtype().size();
        match &self.held {
            Held::KeysAndValues { keys, values } => {
                [keys, values].into_iter().flatten().map(of).sum()
            }
            Held::Sums(sums) => sums
                .iter()
                .map(|sums| of(&sums.sums) + of(&sums.peak))
                .sum(),
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
