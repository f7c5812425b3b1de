//! The cache of one block.

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{BasicOps, Device, Int, Tensor};
use emberlm_kernels::{AttentionMask, Backend, SelfAttention, ops};

use super::CacheFormat;
use super::place::{Place, write};
use super::recurrent::RecurrentState;
use super::retention::Retention;
use super::tokens::CachedTokens;
use crate::nn::attention::{AttentionConfig, Mechanism};

/// The keys and values of one block, or the state of an attention that has none.
#[derive(Clone, Debug)]
pub struct LayerCache<B: BurnBackend> {
    pub(super) held: LayerState<B>,
    pub(super) len: usize,
}

/// Cached state of an attention mechanism.
#[derive(Clone, Debug)]
pub(super) enum LayerState<B: BurnBackend> {
    KeysAndValues(KeysAndValues<B>),
    /// A summary of all tokens; `None` before the first one.
    Recurrent(Option<RecurrentState<B>>),
}

/// The keys and values of all tokens that have not been dropped.
#[derive(Clone, Debug)]
pub(super) struct KeysAndValues<B: BurnBackend> {
    /// `[batch, kv_heads, rows, head_dim]`, like `values`. Writes take the tensor out of the option, because Burn
    /// updates a tensor in place only if it has a single owner. Of latent attention, these are the latents and the rotated parts
    /// of the keys, and there are no values.
    pub(super) keys: Option<CachedTokens<B>>,
    pub(super) values: Option<CachedTokens<B>>,
    format: CacheFormat,
    retention: Retention,
    /// Number of tokens after [`Retention::head`] that are no longer held. Row `i` at or after the head is token `i +
    /// dropped`.
    pub(super) dropped: usize,
}

impl<B: Backend> LayerCache<B> {
    pub(crate) fn new(
        attention: &AttentionConfig,
        format: CacheFormat,
        batch: usize,
        capacity: usize,
        device: &Device<B>,
    ) -> Self {
        let held = match attention.mechanism {
            Mechanism::Softmax { reach, .. } => {
                let retention = Retention::of(reach);
                let rows = retention.rows(capacity);
                let ([heads, width], tensors) = attention.cached();
                let zeros = || CachedTokens::zeros([batch, heads, rows, width], format, device);
                LayerState::KeysAndValues(KeysAndValues {
                    keys: Some(zeros()),
                    values: (tensors > 1).then(zeros),
                    format,
                    retention,
                    dropped: 0,
                })
            }
            Mechanism::Linear { .. } | Mechanism::Delta(_) => LayerState::Recurrent(None),
        };
        Self { held, len: 0 }
    }

    /// Number of cached tokens, including those outside the window.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the cache holds no token.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn clear(&mut self) {
        self.truncate(0);
    }

    /// See [`super::KvCache::reusable`]; `len` is at most the cache's.
    pub(super) fn reusable(&self, len: usize) -> usize {
        let can_continue = match &self.held {
            LayerState::Recurrent(_) => len == self.len,
            LayerState::KeysAndValues(held) => held.retention.continues(len, held.dropped),
        };
        if can_continue { len } else { 0 }
    }

    /// Truncates to `len` tokens, a length that [`LayerCache::reusable`] returned.
    pub(super) fn truncate(&mut self, len: usize) {
        match &mut self.held {
            LayerState::Recurrent(state) if len == 0 => *state = None,
            LayerState::KeysAndValues(held) if len <= held.retention.head() => held.dropped = 0,
            LayerState::Recurrent(_) | LayerState::KeysAndValues(_) => {}
        }
        self.len = len;
    }

    /// Copies the first `len` tokens of another cache. `len` must be reusable in `other`.
    pub(super) fn copy_from(&mut self, other: &Self, len: usize) {
        self.truncate(0);
        match (&mut self.held, &other.held) {
            (LayerState::Recurrent(state), LayerState::Recurrent(other)) if len > 0 => {
                state.clone_from(other)
            }
            (LayerState::KeysAndValues(held), LayerState::KeysAndValues(other)) if len > 0 => {
                held.copy_from(other, len);
            }
            _ => {}
        }
        self.len = len;
    }

    /// The device of its tensors; none before the first token of a recurrent state.
    pub(super) fn device(&self) -> Option<Device<B>> {
        match &self.held {
            LayerState::KeysAndValues(held) => held.keys.as_ref().map(CachedTokens::device),
            LayerState::Recurrent(state) => state.as_ref().map(RecurrentState::device),
        }
    }

    /// Replaces the batch's sequences by those with the given numbers, `[selected]`.
    pub(super) fn select(&mut self, rows: &Tensor<B, 1, Int>) {
        match &mut self.held {
            LayerState::KeysAndValues(held) => {
                for tokens in [&mut held.keys, &mut held.values] {
                    *tokens = tokens.take().map(|tokens| tokens.select(rows));
                }
            }
            LayerState::Recurrent(state) => *state = state.take().map(|state| state.select(rows)),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match &self.held {
            LayerState::KeysAndValues(KeysAndValues { keys, values, .. }) => {
                let both = [keys, values].into_iter().flatten();
                both.map(CachedTokens::bytes).sum()
            }
            LayerState::Recurrent(state) => state.as_ref().map_or(0, RecurrentState::bytes),
        }
    }

    /// Appends keys and values `[batch, kv_heads, seq, head_dim]` and returns all keys and values that the new tokens
    /// can attend to, the new ones last, in the format of the cache.
    pub(crate) fn append(
        &mut self,
        keys: Tensor<B, 4>,
        values: Tensor<B, 4>,
    ) -> (CachedTokens<B>, CachedTokens<B>) {
        let start = self.len;
        self.len += keys.dims()[2];
        match &mut self.held {
            LayerState::KeysAndValues(held) => held.append(start, keys, values),
            // Not reached: these attentions use only their state.
            LayerState::Recurrent(_) => (CachedTokens::Floats(keys), CachedTokens::Floats(values)),
        }
    }

    /// Appends rows of latents `[batch, 1, seq, width]` and returns all rows that the new tokens can attend to.
    pub(crate) fn append_rows(&mut self, rows: Tensor<B, 4>) -> CachedTokens<B> {
        let start = self.len;
        self.len += rows.dims()[2];
        match &mut self.held {
            LayerState::KeysAndValues(held) => {
                let place = held.place(start, rows.dims()[2]);
                place.put(&mut held.keys, rows)
            }
            // Not reached: latent attention has no other state.
            LayerState::Recurrent(_) => CachedTokens::Floats(rows),
        }
    }

    /// Appends the keys and values in the output of a fused projection, and returns the attention of its queries over all
    /// tokens. `None` if these are not in f32, or some must be dropped for them: then [`LayerCache::append`] is for them.
    pub(crate) fn attention(
        &mut self,
        qkv: Tensor<B, 3>,
        angles: Option<ops::Angles<B>>,
        mask: AttentionMask<B>,
        config: SelfAttention,
    ) -> Option<Tensor<B, 3>> {
        let (start, seq) = (self.len, qkv.dims()[1]);
        let mask = self.mask(mask);
        let LayerState::KeysAndValues(held) = &mut self.held else {
            return None;
        };
        let rows = start - held.dropped;
        let capacity = held.keys.as_ref().map_or(0, CachedTokens::len);
        if rows + seq > capacity {
            return None;
        }
        // Taken out, so that nothing else owns them.
        let taken = (held.keys.take(), held.values.take());
        let (Some(CachedTokens::Floats(keys)), Some(CachedTokens::Floats(values))) = taken else {
            (held.keys, held.values) = taken;
            return None;
        };
        let cached = [keys, values];
        let (mixed, cached) = ops::cached_attention(qkv, angles, cached, rows, mask, config);
        [held.keys, held.values] = cached.map(|of| Some(CachedTokens::Floats(of)));
        self.len += seq;
        Some(mixed)
    }

    /// Restricts the padding and bias of a mask over all tokens to the keys that [`LayerCache::append`] returns.
    pub(crate) fn mask(&self, mask: AttentionMask<B>) -> AttentionMask<B> {
        let (head, dropped) = match &self.held {
            LayerState::KeysAndValues(held) if held.dropped > 0 => {
                (held.retention.head(), held.dropped)
            }
            LayerState::KeysAndValues(_) | LayerState::Recurrent(_) => return mask,
        };
        AttentionMask {
            padding: mask.padding.map(|of| without(of, 1, head, dropped)),
            bias: mask.bias.map(|of| without(of, 2, head, dropped)),
            ..mask
        }
    }

    /// Takes the state; [`LayerCache::put_state`] stores the next one.
    pub(crate) fn take_state(&mut self) -> Option<RecurrentState<B>> {
        match &mut self.held {
            LayerState::Recurrent(state) => state.take(),
            LayerState::KeysAndValues(_) => None,
        }
    }

    /// Stores the state after `seq` more tokens.
    pub(crate) fn put_state(&mut self, state: Option<RecurrentState<B>>, seq: usize) {
        self.held = LayerState::Recurrent(state);
        self.len += seq;
    }
}

impl<B: Backend> KeysAndValues<B> {
    fn append(
        &mut self,
        len: usize,
        keys: Tensor<B, 4>,
        values: Tensor<B, 4>,
    ) -> (CachedTokens<B>, CachedTokens<B>) {
        let place = self.place(len, keys.dims()[2]);
        let keys = place.put(&mut self.keys, keys);
        (keys, place.put(&mut self.values, values))
    }

    /// The place of `seq` tokens after the first `len`. Tokens that must be dropped for them are counted as dropped.
    fn place(&mut self, len: usize, seq: usize) -> Place {
        let start = len - self.dropped;
        let rows = self.keys.as_ref().map_or(0, CachedTokens::len);
        let dropped = match start + seq > rows {
            true => self.retention.droppable(len + seq).max(self.dropped),
            false => self.dropped,
        };
        let more = dropped - self.dropped;
        self.dropped = dropped;
        Place {
            start,
            head: self.retention.head(),
            dropped: more,
            format: self.format,
        }
    }

    fn copy_from(&mut self, other: &Self, len: usize) {
        // No token is dropped from a sequence that ends within the head.
        self.dropped = match len <= other.retention.head() {
            true => 0,
            false => other.dropped,
        };
        let rows = len - self.dropped;
        let pairs = [
            (&mut self.keys, &other.keys),
            (&mut self.values, &other.values),
        ];
        for (held, other) in pairs {
            if let Some(other) = other {
                write(held, other.clone().narrow(0, rows), 0);
            }
        }
    }
}

/// Removes `count` elements of a dimension after the first `head`.
fn without<B: Backend, K, const D: usize>(
    x: Tensor<B, D, K>,
    dim: usize,
    head: usize,
    count: usize,
) -> Tensor<B, D, K>
where
    K: BasicOps<B>,
{
    let (first, all) = (head + count, x.dims()[dim]);
    let rest = x.clone().narrow(dim, first, all - first);
    match head {
        0 => rest,
        _ => Tensor::cat(vec![x.narrow(dim, 0, head), rest], dim),
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Distribution;
    use burn_flex::Flex;
    use emberlm_kernels::{AttentionOptions, Precision, Reach};

    use super::*;
    use crate::nn::kv_cache::tokens::cached_attention;

    const HEAD_DIM: usize = 32;
    const KV_HEADS: usize = 2;

    fn random(heads: usize, seq: usize) -> Tensor<Flex, 4> {
        let distribution = Distribution::Normal(0.0, 1.0);
        let shape = [1, heads, seq, HEAD_DIM];
        Tensor::random(shape, distribution, &Default::default())
    }

    fn cache(reach: Reach, format: CacheFormat, capacity: usize) -> LayerCache<Flex> {
        let config = AttentionConfig {
            kv_heads: KV_HEADS,
            ..AttentionConfig::new(4 * HEAD_DIM, 4)
        };
        let config = config.with_reach(reach);
        LayerCache::new(&config, format, 1, capacity, &Default::default())
    }

    /// Checks that a windowed cache and a full one give bit-identical outputs for `chunks` of new tokens.
    fn check(format: CacheFormat, tokens: usize, global_tokens: usize, chunks: &[usize]) {
        let reach = Reach::Window {
            tokens,
            global_tokens,
        };
        let options = AttentionOptions {
            reach,
            scale: 0.5,
            soft_cap: None,
            dropout: 0.0,
            precision: Precision::F32,
        };
        let capacity = chunks.iter().sum();
        let [mut window, mut all] =
            [reach, Reach::Causal].map(|reach| cache(reach, format, capacity));
        assert!(window.bytes() < all.bytes());
        for &seq in chunks {
            let (q, k, v) = (random(4, seq), random(KV_HEADS, seq), random(KV_HEADS, seq));
            // Append and remove tokens, as after rejected draft tokens.
            for cache in [&mut window, &mut all] {
                let len = cache.len();
                let drafts = [(); 2].map(|()| random(KV_HEADS, 5.min(capacity - len)));
                let [keys, values] = drafts;
                cache.append(keys, values);
                assert_eq!(cache.reusable(len), len);
                cache.truncate(len);
            }
            let [found, expected] = [&mut window, &mut all].map(|cache| {
                let (k, v) = cache.append(k.clone(), v.clone());
                let mask = AttentionMask::default();
                let mixed = cached_attention(q.clone(), k, v, mask, options);
                mixed.into_data().to_vec::<f32>().unwrap()
            });
            assert!(found == expected, "{seq} tokens to {}", window.len());
        }
    }

    #[test]
    fn windowed_cache_is_bit_identical_to_full_cache() {
        for global_tokens in [0, 7] {
            let mut chunks = vec![1; 1700];
            chunks.extend([100, 900, 3, 64]);
            for format in CacheFormat::ALL {
                check(format, 50, global_tokens, &[3000, 1, 1, 200, 1]);
                check(format, 700, global_tokens, &[256; 12]);
            }
            check(CacheFormat::F32, 50, global_tokens, &chunks);
            check(CacheFormat::Q8, 50, global_tokens, &chunks);
        }
    }

    #[test]
    fn padding_and_bias_follow_held_keys() {
        let device = Default::default();
        let reach = Reach::Window {
            tokens: 50,
            global_tokens: 7,
        };
        let [mut window, mut all] =
            [reach, Reach::Causal].map(|reach| cache(reach, CacheFormat::F32, 3000));
        let (k, v) = (random(KV_HEADS, 2990), random(KV_HEADS, 2990));
        for cache in [&mut window, &mut all] {
            cache.append(k.clone(), v.clone());
        }
        let (q, k, v) = (random(4, 10), random(KV_HEADS, 10), random(KV_HEADS, 10));
        let uniform = Distribution::Uniform(0.0, 1.0);
        let keys = Tensor::<Flex, 2>::random([1, 3000], uniform, &device);
        let bias = Distribution::Normal(0.0, 1.0);
        let mask = AttentionMask {
            padding: Some(keys.greater_elem(0.3)),
            bias: Some(Tensor::random([4, 10, 3000], bias, &device)),
            documents: None,
            sinks: None,
        };
        let options = AttentionOptions {
            reach,
            scale: 0.5,
            soft_cap: None,
            dropout: 0.0,
            precision: Precision::F32,
        };
        let [found, expected] = [&mut window, &mut all].map(|cache| {
            let mask = cache.mask(mask.clone());
            let (k, v) = cache.append(k.clone(), v.clone());
            let mixed = cached_attention(q.clone(), k, v, mask, options);
            mixed.into_data().to_vec::<f32>().unwrap()
        });
        assert!(found == expected);
    }
}
