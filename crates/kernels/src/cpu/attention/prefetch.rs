//! Prefetching of the next head's vectors during the products of the current head.
//!
//! Hardware prefetching does not detect short vectors that are far apart, and for short sequences, waiting for
//! them takes a considerable part of the time. Only a few vectors are prefetched at a time: more outstanding
//! loads than the CPU supports would stall the products.

use super::heads::Heads;
use crate::cpu::prefetch::{LINE, prefetch};

/// Prefetches the vectors of up to `count` tokens, starting at token `from`.
#[inline(always)]
pub fn prefetch_tokens(x: &Heads<'_>, [b, h, from]: [usize; 3], count: usize) {
    let [_, _, tokens, head_dim] = x.dims();
    if from >= tokens {
        return;
    }
    let first = x.vector([b, h, from]).as_ptr();
    for i in 0..count.min(tokens - from) {
        for line in 0..head_dim.div_ceil(LINE) {
            prefetch(first.wrapping_add(i * x.token_stride() + line * LINE));
        }
    }
}
