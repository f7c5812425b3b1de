//! Products through the bfloat16 instructions of x86-64 (AVX512-BF16), twice as fast as those of f32.
//!
//! The factors are rounded to bfloat16 (to nearest, ties to even; a NaN stays one, a subnormal becomes zero) while they are
//! packed into the kernel's order; their products are added in f32. A sum runs over blocks of k whose size depends on k
//! alone, so that how C is cut changes no bit.
//!
//! Map: [`blocked`] cuts a product into blocks that fit the caches, [`pack`] reorders a factor, [`kernel`] multiplies.

#[cfg(target_arch = "x86_64")]
pub(super) mod blocked;
#[cfg(target_arch = "x86_64")]
mod kernel;
#[cfg(target_arch = "x86_64")]
mod pack;

/// Whether this processor has the instructions. Where it does not, products take f32.
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
