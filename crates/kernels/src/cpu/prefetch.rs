//! Asking memory for what is read soon.

/// Asks for the cache line of this element, at whatever address: a hint, where the processor takes it.
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

/// Elements of a cache line, as most processors have them.
pub const LINE: usize = 16;
