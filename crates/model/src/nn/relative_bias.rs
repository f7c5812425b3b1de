//! Relative positions (Raffel et al. 2020, [1910.10683](https://arxiv.org/abs/1910.10683)): a bias of each head's scores
//! by the distance of query and key, in buckets that widen with the distance.

use burn::module::{Module, Param};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Int, Tensor, TensorData};

use emberlm_kernels::{Backend, ops};

use crate::config::RelativePositions;
use crate::nn::attention::AttentionConfig;
use crate::nn::init::{Initializer, OutputRole};

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

/// The relative positions of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelativeConfig {
    /// The buckets of distances.
    pub positions: RelativePositions,
    /// False for a causal stack.
    pub both_directions: bool,
}

impl RelativeConfig {
    /// Number of parameters with `heads` heads.
    pub(crate) fn parameters(&self, heads: usize) -> u128 {
        self.positions.buckets as u128 * heads as u128
    }

    pub(crate) fn init_from<B: Backend>(
        &self,
        attention: &AttentionConfig,
        from: &Initializer<'_, B>,
    ) -> RelativeBias<B> {
        let shape = [self.positions.buckets, attention.heads];
        let path = "relative_bias.weight";
        RelativeBias {
            weight: from.linear(path, shape, attention.d_model, OutputRole::Hidden),
            config: *self,
        }
    }
}

/// The biases of a stack's self-attentions.
#[derive(Module, Debug)]
pub struct RelativeBias<B: BurnBackend> {
    /// The bias of each bucket and head, `[buckets, heads]`.
    pub weight: Param<Tensor<B, 2>>,
    #[module(skip)]
    config: RelativeConfig,
}

impl<B: Backend> RelativeBias<B> {
    /// The bias `[heads, seq, past + seq]` of queries after `past` tokens.
    pub fn bias(&self, past: usize, seq: usize) -> Tensor<B, 3> {
        let RelativeConfig {
            positions,
            both_directions,
        } = self.config;
        let keys = past + seq;
        // One bucket per distance; every row of the matrix is a window of them.
        let nearest = past as i64 + seq as i64 - 1;
        let of_distance: Vec<i64> = (-nearest..=nearest)
            .map(|distance| positions.bucket(distance, both_directions) as i64)
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
