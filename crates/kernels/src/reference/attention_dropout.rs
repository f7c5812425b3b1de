//! The dropout of attention weights, as a function of query and key, so that the backward pass draws the same mask.

use std::ops::Range;

use burn::tensor::backend::Backend;
use burn::tensor::ops::IntTensor;
use burn::tensor::{Bool, Device, Distribution, Int, Tensor};

/// The largest `p` for which `p · p + p` is below 2^31, of the primes that are 2 modulo 3: integers have 32 bits on GPUs.
const PRIME: i32 = 46_337;

/// The numbers that a pass drops by, drawn on the device: linear in the sequence.
///
/// A query has `a`, `b` and `e`, a key `x` and `d`, all uniform modulo the prime `p`, and a weight is dropped where
///
/// ```text
/// v = (a x + b)³ d + e  (mod p)
/// ```
///
/// is not below `(1 - dropout) p`. `e` by itself makes `v` uniform for a key, and `d` for a query. Of two keys, `(a x + b)³` are
/// two independent uniform numbers, as `p` is 2 modulo 3 and cubing a permutation: dropping one is independent of the
/// other. Of two queries, the cubes' ratio over the keys is as uniform, and `d` independent of it. The cube is there for three
/// queries: without it their `v` would lie on a plane. Keys' numbers are the same for all heads and sequences, whose queries
/// have their own.
///
/// It uses only sums, products and divisions because Burn fuses those into one kernel, but not shifts and exclusive ors;
/// nothing wraps, so that integers of any width agree.
#[derive(Clone, Debug)]
pub struct DropoutDraws<B: Backend> {
    /// `a`, `b` and `e`, `[batch, heads, q_len, 3]`.
    pub queries: IntTensor<B>,
    /// `x` and `d`, `[1, 1, 2, k_len]`.
    pub keys: IntTensor<B>,
}

impl<B: Backend> DropoutDraws<B> {
    /// For attention of `[batch, heads, q_len]` queries over `k_len` keys.
    pub(super) fn new(of: [usize; 3], k_len: usize, device: &Device<B>) -> Self {
        let [batch, heads, q_len] = of;
        Self {
            queries: drawn::<B>([batch, heads, q_len, 3], device).into_primitive(),
            keys: drawn::<B>([1, 1, 2, k_len], device).into_primitive(),
        }
    }

    /// True where a weight is dropped, `[sequences, heads, queries, keys]` of those ranges.
    pub(super) fn dropped(
        &self,
        [sequences, queries, keys]: [&Range<usize>; 3],
        dropout: f64,
    ) -> Tensor<B, 4, Bool> {
        let of_queries = Tensor::<B, 4, Int>::from_primitive(self.queries.clone())
            .narrow(0, sequences.start, sequences.len())
            .narrow(2, queries.start, queries.len());
        let of_keys = Tensor::<B, 4, Int>::from_primitive(self.keys.clone());
        let of_keys = of_keys.narrow(3, keys.start, keys.len());
        let [a, b, e] = [0, 1, 2].map(|n| of_queries.clone().narrow(3, n, 1));
        let [x, d] = [0, 1].map(|n| of_keys.clone().narrow(2, n, 1));
        let u = remainder(a * x + b);
        let square = remainder(u.clone() * u.clone());
        let cube = remainder(square * u);
        let v = remainder(cube * d + e);
        v.greater_equal_elem(bound(dropout))
    }
}

/// Of the division by the prime. Burn's own remainder is made of floats on Vulkan, for the sake of numbers below 0, and has not
/// the digits; its division of integers is one of integers everywhere.
fn remainder<B: Backend>(x: Tensor<B, 4, Int>) -> Tensor<B, 4, Int> {
    x.clone() - x.div_scalar(PRIME) * PRIME
}

/// The factor of the kept weights, so that their expectation is that of all: `p` over how many values of `v` keep,
/// `1/(1 - dropout)` to five digits.
pub(super) fn kept_factor(dropout: f64) -> f64 {
    f64::from(PRIME) / f64::from(bound(dropout))
}

/// The first `v` that drops. Something is kept whatever the rate, so that nothing is divided by 0.
fn bound(dropout: f64) -> i32 {
    (((1.0 - dropout) * f64::from(PRIME)).round() as i32).max(1)
}

/// Uniform from 0 to below the prime. A generator that gives 1.0 gives the prime itself, which is 0 to all that is done with
/// it and passes no bound.
fn drawn<B: Backend>(shape: [usize; 4], device: &Device<B>) -> Tensor<B, 4, Int> {
    let uniform = Tensor::<B, 4>::random(shape, Distribution::Uniform(0.0, 1.0), device);
    (uniform * f64::from(PRIME)).int()
}
