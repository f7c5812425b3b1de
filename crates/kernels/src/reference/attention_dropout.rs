//! Dropout of attention weights as a function of query and key, so that the backward pass can recompute the mask.

use std::ops::Range;

use burn::tensor::backend::Backend;
use burn::tensor::ops::IntTensor;
use burn::tensor::{Bool, Device, Distribution, Int, Tensor};

/// The largest prime `p` equal to 2 modulo 3 for which `p · p + p` is below 2^31, since integers have 32 bits on
/// GPUs.
pub(crate) const PRIME: i32 = 46_337;

/// The random numbers of a dropout mask. They are drawn on the device, and their number is linear in the sequence
/// length.
///
/// A query has numbers `a`, `b` and `e`, and a key has `x` and `d`, all uniform modulo the prime `p`. A weight is
/// dropped if
///
/// ```text
/// v = (a x + b)³ d + e  (mod p)
/// ```
///
/// is at least `(1 - dropout) p`. `e` makes `v` uniform for any key, and `d` for any query. For two keys,
/// `a x + b` gives two independent uniform numbers, and so does its cube: cubing is a permutation because `p` is
/// 2 modulo 3. The two keys are therefore dropped independently. For two queries, the ratio of their cubes is
/// uniform over the keys, and `d` is independent of it. The cube matters for three queries, whose `v` would
/// otherwise lie on a plane. The numbers of the keys are shared by all heads and sequences; those of the queries
/// are not.
///
/// The mask only uses sums, products and divisions, which Burn fuses into one kernel; shifts and exclusive ors
/// are not fused. Nothing overflows, so the results agree for integers of any width.
#[derive(Clone, Debug)]
pub struct DropoutDraws<B: Backend> {
    /// `a`, `b` and `e`, `[batch, heads, q_len, 3]`.
    pub queries: IntTensor<B>,
    /// `x` and `d`, `[1, 1, 2, k_len]`.
    pub keys: IntTensor<B>,
}

impl<B: Backend> DropoutDraws<B> {
    /// Draws the numbers for attention of `[batch, heads, q_len]` queries over `k_len` keys.
    pub(crate) fn new(of: [usize; 3], k_len: usize, device: &Device<B>) -> Self {
        let [batch, heads, q_len] = of;
        Self {
            queries: uniform_below_prime::<B>([batch, heads, q_len, 3], device).into_primitive(),
            keys: uniform_below_prime::<B>([1, 1, 2, k_len], device).into_primitive(),
        }
    }

    /// Returns the dropout mask, true for dropped weights, `[sequences, heads, queries, keys]` for the given
    /// ranges.
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

/// The remainder of the division by the prime. On Vulkan, Burn's own remainder uses floats to support negative
/// numbers, which lack the precision; its integer division is exact everywhere.
fn remainder<B: Backend>(x: Tensor<B, 4, Int>) -> Tensor<B, 4, Int> {
    x.clone() - x.div_scalar(PRIME) * PRIME
}

/// The factor of the weights that are not dropped: `p` divided by the number of values of `v` that keep a weight.
/// It preserves the expectation and equals `1/(1 - dropout)` to five digits.
pub(crate) fn kept_factor(dropout: f64) -> f64 {
    f64::from(PRIME) / f64::from(bound(dropout))
}

/// The smallest `v` that drops a weight. It is at least 1, so [`kept_factor`] never divides by 0.
pub(crate) fn bound(dropout: f64) -> i32 {
    (((1.0 - dropout) * f64::from(PRIME)).round() as i32).max(1)
}

/// Draws uniform integers below the prime. If the generator returns 1.0, the result is the prime itself, which is
/// congruent to 0.
fn uniform_below_prime<B: Backend>(shape: [usize; 4], device: &Device<B>) -> Tensor<B, 4, Int> {
    let uniform = Tensor::<B, 4>::random(shape, Distribution::Uniform(0.0, 1.0), device);
    (uniform * f64::from(PRIME)).int()
}
