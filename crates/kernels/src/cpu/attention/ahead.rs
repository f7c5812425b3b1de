//! Asking for the next head's vectors while this one's products are made.
//!
//! Short vectors that lie far apart are not what the processor fetches by itself, and where sequences are short, waiting
//! for them takes a good part of the time. A few at once: more than the processor can wait for would hold up the products.

use super::heads::Heads;

/// Elements of a cache line, as most processors have them.
const LINE: usize = 16;

/// Asks for the vectors of some tokens, as far as there are any.
#[inline(always)]
pub fn ask(x: &Heads<'_>, [b, h, from]: [usize; 3], count: usize) {
    let [_, _, tokens, head_dim] = x.dims();
    if from >= tokens {
        return;
    }
    let first = x.vector([b, h, from]).as_ptr();
    for i in 0..count.min(tokens - from) {
        for line in 0..head_dim.div_ceil(LINE) {
            let at = first.wrapping_add(i * x.token_stride() + line * LINE);
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a hint, which may be of any address.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(at.cast());
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = at;
        }
    }
}
