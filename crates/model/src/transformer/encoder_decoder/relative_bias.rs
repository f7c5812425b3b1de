//! Relative positions (Raffel et al. 2020, [1910.10683](https://arxiv.org/abs/1910.10683)): a bias of each head's scores
//! by the distance of query and key, in buckets that widen with the distance.

use burn::module::{Module, Param};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Bool, Int, Tensor, TensorData};

use emberlm_kernels::{AttentionMask, Backend, ops};

use super::config::RelativePositions;
use crate::nn::context::{StackContext, StackMemory};
use crate::nn::init::{Initializer, OutputRole};
use crate::nn::kv_cache::KvCache;
use crate::nn::stack::{Stack, StackConfig};

impl RelativePositions {
    /// The bucket of a key at `distance` positions after the query. With `both_directions`, half of the buckets belong
    /// to later keys; without, later keys share the query's own bucket.
    ///
    /// Half of a direction's buckets hold one distance each, the other half logarithmically more up to `max_distance`.
    pub fn bucket(&self, distance: i64, both_directions: bool) -> usize {
        let (buckets, first, distance) = match both_directions {
            true => {
                let buckets = self.buckets / 2;
                let first = if distance > 0 { buckets } else { 0 };
                (buckets, first, distance.unsigned_abs())
            }
            false => (self.buckets, 0, distance.min(0).unsigned_abs()),
        };
        let exact = buckets / 2;
        if distance < exact as u64 {
            return first + distance as usize;
        }
        // In f32 as in `transformers`, so that distances at the edge of a bucket fall on the same side.
        let octaves = (self.max_distance as f64 / exact as f64).ln() as f32;
        let place = (distance as f32 / exact as f32).ln() / octaves * (buckets - exact) as f32;
        first + (exact + place as usize).min(buckets - 1)
    }
}

/// The biases of a stack's self-attentions.
#[derive(Module, Debug)]
pub struct RelativeBias<B: BurnBackend> {
    /// The bias of each bucket and head, `[buckets, heads]`.
    pub weight: Param<Tensor<B, 2>>,
    #[module(skip)]
    positions: RelativePositions,
    #[module(skip)]
    both_directions: bool,
}

impl<B: Backend> RelativeBias<B> {
    /// The bias `[heads, seq, past + seq]` of queries after `past` tokens.
    pub fn bias(&self, past: usize, seq: usize) -> Tensor<B, 3> {
        let keys = past + seq;
        // One bucket per distance; every row of the matrix is a window of them.
        let nearest = past as i64 + seq as i64 - 1;
        let of_distance: Vec<i64> = (-nearest..=nearest)
            .map(|distance| self.positions.bucket(distance, self.both_directions) as i64)
            .collect();
        let mut buckets = Vec::with_capacity(seq * keys);
        for query in past..keys {
            let first = nearest as usize - query;
            buckets.extend_from_slice(&of_distance[first..first + keys]);
        }
        let data = TensorData::new(buckets, [seq, keys]);
        let buckets = Tensor::<B, 2, Int>::from_data(data, &self.weight.device());
        ops::embedding(self.weight.val(), buckets).permute([2, 0, 1])
    }
}

/// The configuration of a [`RelativeStack`].
#[derive(Clone, Debug, PartialEq)]
pub struct RelativeStackConfig {
    /// The blocks and the final norm.
    pub stack: StackConfig,
    pub(crate) positions: RelativePositions,
    /// False for a causal stack.
    pub(crate) both_directions: bool,
}

impl RelativeStackConfig {
    pub(crate) fn init_from<B: Backend>(&self, from: &Initializer<'_, B>) -> RelativeStack<B> {
        let attention = &self.stack.block.attention;
        let shape = [self.positions.buckets, attention.heads];
        RelativeStack {
            stack: self.stack.init_from(from),
            relative_bias: RelativeBias {
                weight: from.linear(
                    "relative_bias.weight",
                    shape,
                    attention.d_model,
                    OutputRole::Hidden,
                ),
                positions: self.positions,
                both_directions: self.both_directions,
            },
        }
    }
}

/// Blocks whose self-attentions share one table of relative positions.
#[derive(Module, Debug)]
pub struct RelativeStack<B: BurnBackend> {
    /// The blocks.
    pub stack: Stack<B>,
    /// The bias of all blocks' scores. Published checkpoints store it with the first block.
    pub relative_bias: RelativeBias<B>,
}

impl<B: Backend> RelativeStack<B> {
    /// Runs the blocks over `[batch, seq, d_model]` that continue the cached tokens.
    pub(super) fn run(
        &self,
        x: Tensor<B, 3>,
        padding: Option<Tensor<B, 2, Bool>>,
        memory: Option<&StackMemory<B>>,
        cache: Option<&mut KvCache<B>>,
    ) -> Tensor<B, 3> {
        let past = cache.as_ref().map_or(0, |cache| cache.len());
        let context = self.context(past, x.dims()[1], padding, memory);
        self.stack.run(x, context, cache)
    }

    /// The self-attentions' weights of every block without a cache.
    pub(super) fn attention_weights(
        &self,
        x: Tensor<B, 3>,
        padding: Option<Tensor<B, 2, Bool>>,
        memory: Option<&StackMemory<B>>,
    ) -> Vec<Tensor<B, 4>> {
        let context = self.context(0, x.dims()[1], padding, memory);
        self.stack.run_attention_weights(x, context)
    }

    /// The cross-attentions' weights of every block without a cache.
    pub(super) fn cross_weights(
        &self,
        x: Tensor<B, 3>,
        memory: &StackMemory<B>,
    ) -> Vec<Tensor<B, 4>> {
        let context = self.context(0, x.dims()[1], None, Some(memory));
        self.stack.run_cross_weights(x, context)
    }

    fn context<'a>(
        &self,
        past: usize,
        seq: usize,
        padding: Option<Tensor<B, 2, Bool>>,
        memory: Option<&'a StackMemory<B>>,
    ) -> StackContext<'a, B> {
        let mask = AttentionMask {
            documents: None,
            padding,
            bias: Some(self.relative_bias.bias(past, seq)),
        };
        StackContext { mask, memory }
    }
}
