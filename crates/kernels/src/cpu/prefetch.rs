//! Asking memory for what is read soon.

/// Prefetches the cache line of this element, at any address: a hint on CPUs that support it.
#[inline(always)]
pub fn prefetch(at: *const f32) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint that reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// Elements of a cache line on most CPUs.
pub const LINE: usize = 16;
