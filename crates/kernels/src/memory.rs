//! What the allocator does with memory that is freed.

#![allow(unsafe_code)]

use libmimalloc_sys::{mi_option_set, mi_option_t};

/// `mi_option_purge_delay` of mimalloc's header, which its bindings leave out.
const PURGE_DELAY: mi_option_t = 15;

/// Makes mimalloc, where it is the allocator, keep what is freed instead of returning it to the system after 10 ms: a training
/// step frees all that the next one takes, and taking fresh pages costs as much as a tenth of the step. The process holds
/// what it held at its most.
pub fn keep_freed() {
    // SAFETY: it sets a number of the allocator's, at any time and from any thread.
    unsafe { mi_option_set(PURGE_DELAY, -1) };
}
