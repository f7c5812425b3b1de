//! Inner loops for automatic vectorization with the best instructions of the CPU.
//!
//! [`wide`] runs a closure that is compiled once per instruction set. Sums use [`LANES`] partial sums regardless
//! of the vector width, so results are identical on all CPUs.

use std::hint::black_box;
use std::sync::LazyLock;

use pulp::{Arch, Simd, WithSimd};

use super::prefetch::{LINE, prefetch_ahead};

/// The number of partial sums of a reduction.
pub const LANES: usize = 32;

static ARCH: LazyLock<Arch> = LazyLock::new(Arch::new);

/// Runs `task`, compiled for the widest vectors of this CPU. `task` is a closure `#[inline(always)] || …`, or a
/// type that uses SIMD vectors explicitly. Functions that it calls must be `#[inline(always)]` too; otherwise
/// they are compiled for the baseline CPU.
#[inline(always)]
pub fn wide<T: WithSimd>(task: T) -> T::Output {
    ARCH.dispatch(task)
}

/// [`wide`] for a closure with polynomials, which are faster and as accurate with fused multiply-adds. The
/// closure receives a [`MultiplyAdd`] for this CPU.
#[inline(always)]
pub fn wide_fused<R>(f: impl FnOnce(MultiplyAdd) -> R) -> R {
    struct Fused<F>(F);
    impl<F: FnOnce(MultiplyAdd) -> R, R> WithSimd for Fused<F> {
        type Output = R;

        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> R {
            (self.0)(MultiplyAdd::of_instructions::<S>())
        }
    }
    ARCH.dispatch(Fused(f))
}

/// Computes `a b + c`, in one instruction if the CPU has one. Without it, `f32::mul_add` would be a slow function
/// call.
#[derive(Clone, Copy, Debug)]
pub struct MultiplyAdd {
    fused: bool,
}

impl MultiplyAdd {
    /// Separate multiplication and addition, each rounded.
    pub const PLAIN: Self = Self { fused: false };

    /// That of an instruction set.
    #[inline(always)]
    pub fn of_instructions<S: Simd>() -> Self {
        // All vector instruction sets that are dispatched to include fused multiply-adds.
        Self {
            fused: !S::IS_SCALAR,
        }
    }

    /// `a b + c`.
    #[inline(always)]
    pub fn of(self, a: f32, b: f32, c: f32) -> f32 {
        if self.fused {
            a.mul_add(b, c)
        } else {
            a * b + c
        }
    }
}

/// The smallest `x` for which `e^x` is a normal number.
pub const LEAST_EXPONENT: f32 = -87.336_54;

/// `e^x` within 2 units in the last place; 0 below -87.3, and +∞ above 88.7. NaN stays NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const LARGEST: f32 = 88.722_83;
    let (value, n) = reduced_exp(x.clamp(LEAST_EXPONENT, LARGEST));
    // 2ⁿ as two factors, since n reaches 128 and 2¹²⁸ is not an f32.
    let n = n as i32;
    let half = n >> 1;
    let power = |n: i32| f32::from_bits(((n + 127) as u32) << 23);
    let value = value * power(half) * power(n - half);
    let value = if x < LEAST_EXPONENT { 0.0 } else { value };
    let value = if x > LARGEST { f32::INFINITY } else { value };
    if x.is_nan() { x } else { value }
}

/// `tanh x` with a relative error of at most 4e-7: `(1 - e^-2|x|) / (1 + e^-2|x|)` with the sign of `x`, and a
/// Taylor series near 0, where the quotient cancels.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let power = exp(-2.0 * x.abs());
    let far = ((1.0 - power) / (1.0 + power)).copysign(x);
    let s = x * x;
    let series =
        1.0 + s * (-1.0 / 3.0 + s * (2.0 / 15.0 + s * (-17.0 / 315.0 + s * (62.0 / 2835.0))));
    if x.abs() < 0.3 { x * series } else { far }
}

/// The constants of `e^x`: `x = n ln 2 + r` (Cody and Waite), and `e^r = 1 + r + r² P(r)` for `|r| ≤ ln 2 / 2`.
#[allow(clippy::excessive_precision)]
pub mod exponential {
    /// 1.5 · 2²³: adding it rounds to an integer.
    pub const ROUND: f32 = 12_582_912.0;
    /// The upper bits of ln 2.
    pub const LN_2_HIGH: f32 = 0.693_359_375;
    /// The lower bits of ln 2.
    pub const LN_2_LOW: f32 = -2.121_944_4e-4;
    /// The coefficients of `P`, highest power first.
    pub const P: [f32; 6] = [
        1.987_569_15e-4,
        1.398_199_95e-3,
        8.333_451_9e-3,
        4.166_579_6e-2,
        1.666_666_55e-1,
        5.000_000_1e-1,
    ];
}

/// Returns `e^r` and `n` such that `x = n ln 2 + r` with `|r| ≤ ln 2 / 2` (Cody and Waite), for `x` from
/// [`LEAST_EXPONENT`] to 88.7. `e^x` is `2ⁿ e^r`, with `n` in two's complement.
#[inline(always)]
pub fn reduced_exp(x: f32) -> (f32, u32) {
    reduced_exp_by(MultiplyAdd::PLAIN, x)
}

/// [`reduced_exp`] with the given multiply-add.
#[inline(always)]
pub fn reduced_exp_by(add: MultiplyAdd, x: f32) -> (f32, u32) {
    use exponential::{LN_2_HIGH, LN_2_LOW, P, ROUND};
    let shifted = add.of(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = add.of(n, -LN_2_LOW, add.of(n, -LN_2_HIGH, x));
    let mut p = P[0];
    p = add.of(p, r, P[1]);
    p = add.of(p, r, P[2]);
    p = add.of(p, r, P[3]);
    p = add.of(p, r, P[4]);
    p = add.of(p, r, P[5]);
    let value = add.of(p, r * r, r) + 1.0;
    (value, shifted.to_bits().wrapping_sub(ROUND.to_bits()))
}

/// `Σ x` with [`LANES`] partial sums.
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
    sum_halves(&sums) + rest.iter().sum::<f32>()
}

/// `Σ value(w) x` of slices of equal length, with [`LANES`] partial sums. The row `w` is read from memory `AHEAD` bytes in
/// advance; 0 is for a row in the cache.
#[inline(always)]
pub fn dot<const AHEAD: usize, T: Copy>(w: &[T], x: &[f32], value: impl Fn(T) -> f32) -> f32 {
    const HALF: usize = LANES / 2;
    let line = LINE * size_of::<f32>() / size_of::<T>();
    let mut sums = [[0.0f32; HALF]; 2];
    let (w, rest_w) = w.as_chunks::<LANES>();
    let (x, rest_x) = x.as_chunks::<LANES>();
    for (w, x) in w.iter().zip(x) {
        if AHEAD > 0 {
            for first in (0..LANES).step_by(line) {
                prefetch_ahead::<AHEAD, T>(&w[first..]);
            }
        }
        // In two halves, because the compiler vectorizes loops over whole arrays.
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
    // Hides the use of the sums from the compiler, which would otherwise split the vectors of the loop.
    let [mut all, upper] = black_box(sums);
    for lane in 0..HALF {
        all[lane] += upper[lane];
    }
    fold_halves::<8>(&mut all);
    fold_halves::<4>(&mut all);
    fold_halves::<2>(&mut all);
    fold_halves::<1>(&mut all);
    let rest = rest_w.iter().zip(rest_x);
    rest.fold(all[0], |sum, (w, x)| sum + value(*w) * *x)
}

/// Adds the upper half of `2 · WIDTH` partial sums to the lower half.
#[inline(always)]
fn fold_halves<const WIDTH: usize>(sums: &mut [f32; LANES / 2]) {
    for lane in 0..WIDTH {
        sums[lane] += sums[lane + WIDTH];
    }
}

/// Adds up partial sums. Not inlined: next to the loop that computes them, it would make the compiler split the
/// vectors of the loop.
#[inline(never)]
fn sum_halves(sums: &[[f32; LANES / 2]; 2]) -> f32 {
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

/// `Σ f(x, y, z)` with four times 16 partial sums.
#[inline(always)]
pub fn sum_by(x: &[f32], y: &[f32], z: &[f32], f: impl Fn(f32, f32, f32) -> f32) -> f32 {
    const LANES: usize = 16;
    let mut sums = [[0.0f32; LANES]; 4];
    let add = |sums: &mut [f32; LANES], x: &[f32; LANES], y: &[f32; LANES], z: &[f32; LANES]| {
        let mut terms = [0.0f32; LANES];
        for lane in 0..LANES {
            terms[lane] = f(x[lane], y[lane], z[lane]);
        }
        for lane in 0..LANES {
            sums[lane] += terms[lane];
        }
    };
    let (x, rest_x) = x.as_chunks::<LANES>();
    let (y, rest_y) = y.as_chunks::<LANES>();
    let (z, rest_z) = z.as_chunks::<LANES>();
    let (y, z) = (&y[..x.len()], &z[..x.len()]);
    let fours = x.len() / 4 * 4;
    for i in (0..fours).step_by(4) {
        for four in 0..4 {
            add(&mut sums[four], &x[i + four], &y[i + four], &z[i + four]);
        }
    }
    for i in fours..x.len() {
        add(&mut sums[0], &x[i], &y[i], &z[i]);
    }
    let mut rest = 0.0;
    for ((x, y), z) in rest_x.iter().zip(rest_y).zip(rest_z) {
        rest += f(*x, *y, *z);
    }
    let mut lanes = [0.0f32; LANES];
    for lane in 0..LANES {
        lanes[lane] = (sums[0][lane] + sums[1][lane]) + (sums[2][lane] + sums[3][lane]);
    }
    sum_16(&lanes) + rest
}

/// Adds up 16 partial sums, recursively by halves. Not inlined; see [`sum_halves`].
#[inline(never)]
fn sum_16(lanes: &[f32; 16]) -> f32 {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *lanes;
    (((a + i) + (e + m)) + ((c + k) + (g + o))) + (((b + j) + (f + n)) + ((d + l) + (h + p)))
}

/// The largest element, or -∞ for an empty slice.
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

    /// The distance of two numbers of the same sign in units in the last place.
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
    fn tanh_is_the_hyperbolic_tangent() {
        for i in -200_000..=200_000 {
            let x = i as f32 * 1e-4;
            let expected = f64::from(x).tanh();
            let error = (f64::from(tanh(x)) - expected).abs();
            assert!(error <= 4e-7 * expected.abs(), "tanh({x}) = {}", tanh(x));
        }
        assert_eq!(tanh(f32::INFINITY), 1.0);
        assert_eq!(tanh(f32::NEG_INFINITY), -1.0);
        assert!(tanh(f32::NAN).is_nan());
    }

    #[test]
    fn reductions_include_every_element() {
        for len in 0..200 {
            let x: Vec<f32> = (0..len).map(|i| (i * 7 % 13) as f32 - 5.0).collect();
            let y: Vec<f32> = (0..len).map(|i| (i * 5 % 11) as f32 - 4.0).collect();
            assert_eq!(sum(&x), x.iter().sum::<f32>());
            assert_eq!(
                dot::<0, f32>(&x, &y, |x| x),
                x.iter().zip(&y).map(|(x, y)| x * y).sum::<f32>()
            );
            assert_eq!(max(&x), x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            assert_eq!(wide(|| sum(&x)), sum(&x));
        }
    }
}
