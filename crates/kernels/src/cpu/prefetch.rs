//! Software prefetching.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};

/// Prefetches the cache line at any address, valid or not. Does nothing on CPUs without support.
#[inline(always)]
pub fn prefetch(at: *const f32) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint that never faults.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// [`prefetch`] into the L2 cache, for data that is used later: the loads that wait for memory are then not those of the L1
/// cache, of which there are few.
#[inline(always)]
fn prefetch_later(at: *const f32) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint that never faults.
    unsafe {
        _mm_prefetch::<_MM_HINT_T1>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// Prefetches the data `AHEAD` bytes after `of`, possibly in the next row. Hardware prefetching only detects
/// long streams, and restarts at each page.
#[inline(always)]
pub fn prefetch_ahead<const AHEAD: usize, T>(of: &[T]) {
    prefetch_later(of.as_ptr().wrapping_byte_add(AHEAD).cast());
}

/// The number of f32 in a cache line on most CPUs.
pub const LINE: usize = 16;
