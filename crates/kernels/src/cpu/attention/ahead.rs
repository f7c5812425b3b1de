//! Prefetching the next head's vectors during the products of the present head.
//!
//! The CPU does not prefetch short vectors that are far apart by itself, and if sequences are short, waiting
//! for them takes a good part of the time. A few at once: more outstanding loads than the CPU supports would stall the products.

use super::heads::Heads;
use crate::cpu::prefetch::{LINE, prefetch};

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
            prefetch(first.wrapping_add(i * x.token_stride() + line * LINE));
        }
    }
}
