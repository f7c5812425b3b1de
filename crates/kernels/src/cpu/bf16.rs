//! Products through the bfloat16 instructions of x86-64 (AVX512-BF16), twice as fast as those of f32.
//!
//! The factors are rounded to bfloat16 (to nearest, ties to even; a NaN stays one, a subnormal becomes zero) while they are
//! packed into the kernel's order; their products are added in f32. A sum runs over blocks of k whose size depends only on
//! k, so that the tiling of C changes no bit.
//!
//! Map: `blocked` cuts a product into blocks that fit the caches, `pack` reorders a factor, `kernel` multiplies.

#[cfg(target_arch = "x86_64")]
mod blocked;
#[cfg(target_arch = "x86_64")]
mod kernel;
#[cfg(target_arch = "x86_64")]
mod pack;

use super::matrix::Output;
use super::matrix::{Matrix, MatrixMut};
use crate::Precision;

/// On which threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// All of rayon's pool.
    All,
    /// This one.
    This,
}

/// Returns true if this CPU has the instructions. Otherwise products use f32.
pub fn supported() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512bf16")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// `C = A B` or `C += A B`, best with C's rows contiguous, where it is [`supported`]: whether it is. With
/// [`Precision::F32`] the factors are only packed: once for all threads.
///
/// # Panics
/// Panics if the sizes do not fit.
pub fn product(
    c: &mut MatrixMut<'_>,
    a: Matrix<'_>,
    b: Matrix<'_>,
    output: Output,
    precision: Precision,
    threads: Threads,
) -> bool {
    assert!(
        a.columns == b.rows && c.rows == a.rows && c.columns == b.columns,
        "the sizes do not fit"
    );
    #[cfg(target_arch = "x86_64")]
    if supported() {
        // SAFETY: it is supported, and the sizes fit.
        unsafe {
            match precision {
                Precision::F32 | Precision::F16 => blocked::product::<1>(c, a, b, output, threads),
                Precision::Bf16 => blocked::product::<2>(c, a, b, output, threads),
            }
        }
        return true;
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (output, precision, threads);
    false
}
