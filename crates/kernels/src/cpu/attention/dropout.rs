//! The dropout mask. It depends only on the seed and the position of the weight, so the forward and backward
//! passes compute the same mask on any thread.

use emberlm_system::random::split_mix;
use pulp::Simd;

use super::mask::LANES;
use super::tile::vector;

/// Dropout of the softmax weights: a weight becomes 0 with this probability, and is multiplied by `1/(1 - p)`
/// otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// `p`, in `[0, 1)`.
    pub probability: f64,
    /// The seed of the mask. The backward pass must use that of the forward pass.
    pub seed: u64,
}

/// The dropout of one head of one sequence.
#[derive(Clone, Copy)]
pub struct HeadDropout {
    threshold: u32,
    factor: f32,
    seed: u64,
}

/// The dropout of one key's weights.
#[derive(Clone, Copy)]
pub struct KeyDropout {
    threshold: u32,
    factor: f32,
    words: [u32; 2],
}

impl Dropout {
    /// The dropout of head `head`, counted over the heads of all sequences.
    pub(super) fn of_head(self, head: usize) -> HeadDropout {
        HeadDropout {
            threshold: (self.probability * 4_294_967_296.0) as u32,
            factor: (1.0 / (1.0 - self.probability)) as f32,
            seed: split_mix(self.seed ^ split_mix(head as u64)),
        }
    }
}

impl HeadDropout {
    #[inline(always)]
    pub fn of_key(self, key: usize) -> KeyDropout {
        let word = split_mix(self.seed.wrapping_add(key as u64));
        KeyDropout {
            threshold: self.threshold,
            factor: self.factor,
            words: [word as u32, (word >> 32) as u32],
        }
    }
}

impl KeyDropout {
    /// Returns 0 or `1/(1 - p)`. It only uses 32-bit operations, so that it is vectorized.
    #[inline(always)]
    fn factor(self, query: u32) -> f32 {
        let mut x = query.wrapping_mul(0x9e37_79b9) ^ self.words[0];
        x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
        // Without the second word, two keys with similar first words would have similar masks.
        x = (x ^ (x >> 15))
            .wrapping_add(self.words[1])
            .wrapping_mul(0x846c_a68b);
        x ^= x >> 16;
        if x < self.threshold { 0.0 } else { self.factor }
    }

    /// The factors of a vector of queries, starting at query `first`.
    #[inline(always)]
    pub fn factors<S: Simd>(self, first: u32) -> S::f32s {
        let mut factors = [0.0; LANES];
        for (lane, factor) in factors.iter_mut().enumerate() {
            *factor = self.factor(first.wrapping_add(lane as u32));
        }
        vector::<S>(&factors, 0)
    }
}
