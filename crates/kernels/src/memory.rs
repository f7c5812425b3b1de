//! The allocator's treatment of freed memory.

#![allow(unsafe_code)]

use std::ffi::c_long;

use libmimalloc_sys::{mi_option_get, mi_option_set, mi_option_t};

/// `mi_option_purge_delay` of mimalloc's header, which its bindings leave out.
const PURGE_DELAY: mi_option_t = 15;

/// Never to purge.
const KEEP: c_long = -1;
/// To purge when it is freed.
const AT_ONCE: c_long = 0;

/// Makes mimalloc, where it is the allocator, keep what is freed instead of returning it to the system after 10 ms: a training
/// step frees all that the next one takes, and taking fresh pages costs as much as a tenth of the step. The process holds
/// what it held at its most.
pub fn keep_freed() {
    set_purge_delay(KEEP);
}

/// Does `work` and returns what it frees to the system at once, whatever [`keep_freed`] said: for what frees far more than
/// anything after it will take.
pub fn returning_freed<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: it reads a number of the allocator's, at any time and from any thread.
    let before = unsafe { mi_option_get(PURGE_DELAY) };
    set_purge_delay(AT_ONCE);
    let made = work();
    set_purge_delay(before);
    made
}

fn set_purge_delay(milliseconds: c_long) {
    // SAFETY: it sets a number of the allocator's, at any time and from any thread.
    unsafe { mi_option_set(PURGE_DELAY, milliseconds) };
}
