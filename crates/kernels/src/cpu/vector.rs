//! What inner loops share: loops that the compiler makes SIMD of, for the best instructions that this processor has.
//!
//! [`wide`] runs a closure compiled once for each of them and picks one.
//! A sum runs over [`LANES`] partial sums whatever the width of the registers, so that it is the same number everywhere.

use std::sync::LazyLock;

use pulp::Arch;

/// Partial sums of a reduction.
pub const LANES: usize = 32;

static ARCH: LazyLock<Arch> = LazyLock::new(Arch::new);

/// Runs `f`, compiled for this processor's widest vectors. `f` is `#[inline(always)] || …`, and what it calls is
/// `#[inline(always)]` too: what is only called from there is compiled for the plainest processor.
#[inline(always)]
pub fn wide<R>(f: impl FnOnce() -> R) -> R {
    ARCH.dispatch(f)
}

/// Below, `e^x` is no normal number.
pub const LEAST_EXPONENT: f32 = -87.336_54;

/// `e^x` within 2 units in the last place; 0 below -87.3, and +∞ above 88.7. A NaN stays one.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const LARGEST: f32 = 88.722_83;
    let (value, n) = reduced_exp(x.clamp(LEAST_EXPONENT, LARGEST));
    // 2ⁿ in two factors: n reaches 128, whose own power is no f32.
    let n = n as i32;
    let half = n >> 1;
    let power = |n: i32| f32::from_bits(((n + 127) as u32) << 23);
    let value = value * power(half) * power(n - half);
    let value = if x < LEAST_EXPONENT { 0.0 } else { value };
    let value = if x > LARGEST { f32::INFINITY } else { value };
    if x.is_nan() { x } else { value }
}

/// `e^r` and `n` with `x = n ln 2 + r`, `|r| ≤ ln 2 / 2` (Cody and Waite), for `x` from [`LEAST_EXPONENT`] to 88.7: `e^x` is
/// `2ⁿ e^r`, `n` in two's complement.
#[inline(always)]
#[allow(clippy::excessive_precision)]
pub fn reduced_exp(x: f32) -> (f32, u32) {
    const ROUND: f32 = 12_582_912.0; // 1.5 · 2²³: adding it rounds to an integer
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * 0.693_359_375 - n * -2.121_944_4e-4;
    let mut p = 1.987_569_15e-4;
    p = p * r + 1.398_199_95e-3;
    p = p * r + 8.333_451_9e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_55e-1;
    p = p * r + 5.000_000_1e-1;
    let value = p * (r * r) + r + 1.0;
    (value, shifted.to_bits().wrapping_sub(ROUND.to_bits()))
}

/// `Σ x` over [`LANES`] partial sums.
#[inline(always)]
pub fn sum(x: &[f32]) -> f32 {
    const HALF: usize = LANES / 2;
    let mut sums = [[0.0f32; HALF]; 2];
    let (x, rest) = x.as_chunks::<LANES>();
    for x in x {
        for half in 0..2 {
            for lane in 0..HALF {
                sums[half][lane] += x[half * HALF + lane];
            }
        }
    }
    folded(&sums) + rest.iter().sum::<f32>()
}

/// `Σ value(w) x`, of equally many, over [`LANES`] partial sums, in two halves: whole arrays are what the compiler makes vectors of.
#[inline(always)]
pub fn dot<T: Copy>(w: &[T], x: &[f32], value: impl Fn(T) -> f32) -> f32 {
    const HALF: usize = LANES / 2;
    let mut sums = [[0.0f32; HALF]; 2];
    let (w, rest_w) = w.as_chunks::<LANES>();
    let (x, rest_x) = x.as_chunks::<LANES>();
    for (w, x) in w.iter().zip(x) {
        for half in 0..2 {
            let mut products = [0.0f32; HALF];
            for lane in 0..HALF {
                products[lane] = value(w[half * HALF + lane]) * x[half * HALF + lane];
            }
            for lane in 0..HALF {
                sums[half][lane] += products[lane];
            }
        }
    }
    let mut rest = 0.0;
    for (w, x) in rest_w.iter().zip(rest_x) {
        rest += value(*w) * *x;
    }
    folded(&sums) + rest
}

/// The sum of partial sums. Apart from the loop that makes them: seen together with it, the compiler cuts their vectors
/// into pieces there.
#[inline(never)]
fn folded(sums: &[[f32; LANES / 2]; 2]) -> f32 {
    let mut all = [0.0f32; LANES];
    for (all, sum) in all.iter_mut().zip(sums.as_flattened()) {
        *all = *sum;
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            all[lane] += all[lane + width];
        }
        width /= 2;
    }
    all[0]
}

/// `Σ f(x, y, z)` over 128 partial sums.
///
/// As many as the compiler does not unroll: it makes SIMD of a loop over them, in the nearest cache, and of a few sums in
/// registers only as the code around them happens to be.
#[inline(always)]
pub fn sum_by(x: &[f32], y: &[f32], z: &[f32], f: impl Fn(f32, f32, f32) -> f32) -> f32 {
    const SUMS: usize = 128;
    let mut sums = [0.0f32; SUMS];
    let chunks = x.chunks(SUMS).zip(y.chunks(SUMS)).zip(z.chunks(SUMS));
    for ((x, y), z) in chunks {
        for (((sum, x), y), z) in sums.iter_mut().zip(x).zip(y).zip(z) {
            *sum += f(*x, *y, *z);
        }
    }
    let mut lanes = [0.0f32; 16];
    for sums in sums.as_chunks::<16>().0 {
        for (lane, sum) in lanes.iter_mut().zip(sums) {
            *lane += *sum;
        }
    }
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = lanes;
    (((a + i) + (e + m)) + ((c + k) + (g + o))) + (((b + j) + (f + n)) + ((d + l) + (h + p)))
}

/// The largest; -∞ of none.
#[inline(always)]
pub fn max(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = if *x > *lane { *x } else { *lane };
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane = if *x > *lane { *x } else { *lane };
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// How far apart two numbers of one sign are, counted in floats.
    fn units(a: f32, b: f32) -> u32 {
        a.to_bits().abs_diff(b.to_bits())
    }

    #[test]
    fn exp_is_the_exponential() {
        for i in -870_000..=887_000 {
            let x = i as f32 * 1e-4;
            let expected = f64::from(x).exp() as f32;
            assert!(
                units(exp(x), expected) <= 2,
                "exp({x}) = {} and not {expected}",
                exp(x)
            );
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-100.0), 0.0);
        assert_eq!(exp(89.0), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn reductions_take_every_element() {
        for len in 0..200 {
            let x: Vec<f32> = (0..len).map(|i| (i * 7 % 13) as f32 - 5.0).collect();
            let y: Vec<f32> = (0..len).map(|i| (i * 5 % 11) as f32 - 4.0).collect();
            assert_eq!(sum(&x), x.iter().sum::<f32>());
            assert_eq!(
                dot(&x, &y, |x| x),
                x.iter().zip(&y).map(|(x, y)| x * y).sum::<f32>()
            );
            assert_eq!(max(&x), x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            assert_eq!(wide(|| sum(&x)), sum(&x));
        }
    }
}
