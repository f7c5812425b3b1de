//! Settings for how much memory the process holds: how the allocator returns what was freed, and the size of pages.

#![allow(unsafe_code)]

use std::env;
use std::ffi::c_long;

use libmimalloc_sys::{mi_option_get, mi_option_set, mi_option_t};

/// `mi_option_purge_delay` of mimalloc's header, which the bindings lack.
const PURGE_DELAY: mi_option_t = 15;

/// Never purge.
const KEEP: c_long = -1;
/// Purge memory that was free for a second.
const SOON: c_long = 1000;
/// Purge immediately.
const AT_ONCE: c_long = 0;

/// The user's setting of the allocator.
const CHOSEN: &str = "MIMALLOC_PURGE_DELAY";
/// The user's setting of large pages.
#[cfg(target_os = "linux")]
const LARGE_PAGES_CHOSEN: &str = "MIMALLOC_ALLOW_THP";

/// Makes mimalloc, if it is the allocator, return freed memory to the system at once. What reads files needs far more memory
/// than what it makes of them: the tables of a tokenizer are a sixth of what parsing its file takes.
/// The environment variable `MIMALLOC_PURGE_DELAY` takes precedence.
pub fn return_freed() {
    set_unless_chosen(AT_ONCE);
}

/// Holds fresh memory in pages of the smallest size, until [`large_pages`]. A page of 2 MiB with a single string in use
/// cannot be returned to the system: reading a vocabulary takes 20 MiB more. Does nothing on systems other than Linux. The environment
/// variable `MIMALLOC_ALLOW_THP` takes precedence.
pub fn small_pages() {
    set_large_pages(false);
}

/// Holds fresh memory in large pages again where the system has them, after [`small_pages`], whose setting the programs that
/// this one starts inherit. Reading weights is up to a sixth faster, because far fewer addresses are to be translated. The
/// environment variable `MIMALLOC_ALLOW_THP` takes precedence.
pub fn large_pages() {
    set_large_pages(true);
}

fn set_large_pages(large: bool) {
    #[cfg(target_os = "linux")]
    if env::var_os(LARGE_PAGES_CHOSEN).is_none() {
        // If this fails, the pages keep their size, which changes memory and time only.
        let _ = rustix::thread::disable_transparent_huge_pages(!large);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = large;
}

/// Makes mimalloc, if it is the allocator, keep freed memory, even after [`return_freed`]. A
/// training step frees the memory that the next step allocates again, and page faults on fresh memory cost up to
/// a tenth of a step. The process stays at its peak memory use.
/// The environment variable `MIMALLOC_PURGE_DELAY` takes precedence.
pub fn keep_freed() {
    set_unless_chosen(KEEP);
}

/// Makes mimalloc, if it is the allocator, return memory to the system that was free for a second, even after [`keep_freed`].
/// A server's passes reuse memory sooner; that of its largest request is of no use afterwards. The environment variable
/// `MIMALLOC_PURGE_DELAY` takes precedence.
pub fn return_freed_soon() {
    set_unless_chosen(SOON);
}

/// Runs `work` and returns the memory that it frees to the system immediately, even after [`keep_freed`]. Useful
/// for phases that free far more memory than the process needs later.
pub fn returning_freed<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: reads an atomic option of the allocator, which is allowed at any time and from any thread.
    let before = unsafe { mi_option_get(PURGE_DELAY) };
    set_purge_delay(AT_ONCE);
    let result = work();
    set_purge_delay(before);
    result
}

fn set_unless_chosen(milliseconds: c_long) {
    if env::var_os(CHOSEN).is_none() {
        set_purge_delay(milliseconds);
    }
}

fn set_purge_delay(milliseconds: c_long) {
    // SAFETY: sets an atomic option of the allocator, which is allowed at any time and from any thread.
    unsafe { mi_option_set(PURGE_DELAY, milliseconds) };
}
