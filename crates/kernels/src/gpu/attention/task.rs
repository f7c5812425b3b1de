//! The sizes and options of an attention that the kernels support.

use std::ops::Range;

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;

use super::operands::VectorStrides;
use super::scores::{ReachKind, Variant};
use super::tile::{LANES, Tile};
use crate::gpu::queue::{OnRuntime, Queued};
use crate::reference::attention_blocks::visible_keys;
use crate::{AttentionMask, AttentionOptions, KeyValueCache, Reach, SelfAttention};

/// The most elements of a head.
const MOST_ELEMENTS: usize = 256;

/// The sizes and options of an attention, without its tensors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub batch: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub q_len: usize,
    pub k_len: usize,
    pub head_dim: usize,
    pub options: AttentionOptions,
    pub bias: bool,
    pub documents: bool,
    pub padding: bool,
    pub dropout: bool,
}

impl Task {
    /// The keys that some query may see because of the reach.
    pub fn keys(&self) -> Range<usize> {
        let lengths = [self.q_len, self.k_len];
        visible_keys(&(0..self.q_len), lengths, self.options.reach)
    }

    pub fn variant(&self, tile: Tile) -> Variant {
        let reach = match self.options.reach {
            Reach::Causal => ReachKind::Causal,
            Reach::Window {
                global_tokens: 0, ..
            } => ReachKind::Window,
            Reach::Window { .. } => ReachKind::GlobalWindow,
            Reach::Local { .. } => ReachKind::Local,
            Reach::Full => ReachKind::Full,
        };
        Variant {
            tile,
            reach,
            soft_cap: self.options.soft_cap.is_some(),
            bias: self.bias,
            documents: self.documents,
            padding: self.padding,
            dropout: self.dropout,
        }
    }

    /// The number of words of documents, padding and draws of queries.
    pub fn word_counts(&self) -> [usize; 3] {
        let of = |has: bool, count: usize| if has { count } else { 0 };
        [
            of(self.documents, self.batch * self.q_len),
            of(self.padding, self.batch * self.k_len),
            of(self.dropout, self.batch * self.heads * self.q_len * 3),
        ]
    }

    /// Attention over separate queries, keys and values; `None` if the kernels do not support it.
    pub fn separate<R: CubeRuntime, B: OnRuntime<R>>(
        inputs: [&Queued<R>; 3],
        mask: &AttentionMask<B>,
        options: AttentionOptions,
    ) -> Option<Self> {
        let [batch, heads, q_len, head_dim] = inputs[0].shape.dims();
        let [_, kv_heads, k_len, _] = inputs[1].shape.dims();
        let sizes = [batch, heads, kv_heads, q_len, k_len, head_dim];
        Self::new::<R, B>(sizes, inputs, mask, options)
    }

    /// [`Task::separate`] over the output of a fused projection, whose keys and values are appended to a cache if there is one.
    pub fn fused<R: CubeRuntime, B: OnRuntime<R>>(
        qkv: &Queued<R>,
        cache: Option<&KeyValueCache<B>>,
        mask: &AttentionMask<B>,
        config: SelfAttention,
    ) -> Option<Self> {
        let SelfAttention {
            heads,
            kv_heads,
            head_dim,
            ..
        } = config;
        let [batch, seq, _] = qkv.shape.dims();
        let k_len = cache.map_or(0, |cache| cache.len) + seq;
        let held = cache.map(|cache| [&cache.keys, &cache.values]);
        let has_room = held.iter().flatten().all(|held| {
            let [held_batch, held_heads, capacity, width] = held.shape.dims();
            [held_batch, held_heads, width] == [batch, kv_heads, head_dim] && k_len <= capacity
        });
        let is_cached = held.is_some();
        let [keys, values] = held.unwrap_or([qkv, qkv]);
        let sizes = [batch, heads, kv_heads, seq, k_len, head_dim];
        let task = Self::new::<R, B>(sizes, [qkv, keys, values], mask, config.options);
        // Sinks need the log-sums, which the kernel for a cache does not keep.
        let keeps = !is_cached || mask.sinks.is_none();
        task.filter(|_| has_room && keeps)
    }

    fn new<R: CubeRuntime, B: OnRuntime<R>>(
        sizes: [usize; 6],
        inputs: [&Queued<R>; 3],
        mask: &AttentionMask<B>,
        options: AttentionOptions,
    ) -> Option<Self> {
        let [batch, heads, kv_heads, q_len, k_len, head_dim] = sizes;
        let kind = inputs[0].dtype;
        let bias = mask.bias.as_ref();
        let most = usize::from(u16::MAX);
        let device = R::client(inputs[0].client.device());
        let hardware = &device.properties().hardware;
        let fits = sizes.iter().all(|&size| size > 0)
            && head_dim <= MOST_ELEMENTS
            && batch * heads <= most
            && q_len.max(k_len) <= most * LANES
            && matches!(kind, DType::F32 | DType::F16 | DType::BF16)
            && inputs.iter().all(|x| x.dtype == kind)
            && bias.is_none_or(|bias| bias.dtype() == kind)
            && hardware.max_units_per_cube as usize >= LANES * LANES
            && hardware.max_shared_memory_size >= 32 << 10;
        fits.then(|| Self {
            batch,
            heads,
            kv_heads,
            q_len,
            k_len,
            head_dim,
            options,
            bias: bias.is_some(),
            documents: mask.documents.is_some(),
            padding: mask.padding.is_some(),
            dropout: false,
        })
    }

    /// The layout of a contiguous tensor with all heads of the queries, of 3 dimensions if they are fused.
    pub fn output(&self, fused: bool) -> (Shape, VectorStrides) {
        let Self {
            batch,
            heads,
            q_len,
            head_dim,
            ..
        } = *self;
        let width = heads * head_dim;
        match fused {
            true => (
                Shape::new([batch, q_len, width]),
                VectorStrides::by_tokens(0, head_dim, [q_len * width, width]),
            ),
            false => (
                Shape::new([batch, heads, q_len, head_dim]),
                VectorStrides::by_heads(heads, q_len, head_dim),
            ),
        }
    }
}
