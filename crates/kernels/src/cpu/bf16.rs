//! Matrix products with the bfloat16 instructions of x86-64 (AVX512-BF16), twice as fast as in f32.
//!
//! Packing rounds the operands to bfloat16 (to nearest, ties to even; NaN stays NaN, subnormals become zero) and
//! reorders them for the kernel. Products are summed in f32. Sums are split into blocks of k whose size depends
//! only on k, so the tiling of C does not affect the result.
//!
//! `blocked` divides a product into cache-sized blocks, `pack` reorders an operand, and `kernel` multiplies.

#[cfg(target_arch = "x86_64")]
mod blocked;
#[cfg(target_arch = "x86_64")]
mod kernel;
#[cfg(target_arch = "x86_64")]
mod pack;

use super::matrix::Output;
use super::matrix::{Matrix, MatrixMut};
use crate::Precision;

/// The threads that compute a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// All threads of rayon's pool.
    All,
    /// Only the calling thread.
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

/// Computes `C = A B` or `C += A B` and returns true if it is [`supported`], or returns false. It is fastest if
/// C's rows are contiguous. With [`Precision::F32`] the operands are packed without rounding, once for all
/// threads.
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
        // SAFETY: the instructions are supported, and the sizes fit.
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
