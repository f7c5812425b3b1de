//! Settings for how much memory the process holds: how the allocator returns what was freed, and the size of pages.

#![allow(unsafe_code)]

use std::env;
use std::ffi::c_long;
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Makes mimalloc, if it is the allocator, return freed memory to the system at once. What reads files needs far more memory
/// than what it makes of them: the tables of a tokenizer are a sixth of what parsing its file takes.
/// The environment variable `MIMALLOC_PURGE_DELAY` takes precedence.
pub fn return_freed() {
    set_unless_chosen(AT_ONCE);
}

/// True if [`small_pages`] changed the process's setting.
#[cfg(target_os = "linux")]
static SMALL_PAGES: AtomicBool = AtomicBool::new(false);

/// Holds fresh memory in pages of the smallest size, until [`large_pages`]. In a page of 2 MiB, one string that lives on keeps
/// what is free around it: reading a vocabulary takes 20 MiB more. Has an effect on Linux only.
pub fn small_pages() {
    #[cfg(target_os = "linux")]
    {
        use rustix::thread::{disable_transparent_huge_pages, transparent_huge_pages_are_disabled};
        // A system without them, or a user who chose so, has small pages already.
        if transparent_huge_pages_are_disabled() == Ok(false)
            && disable_transparent_huge_pages(true).is_ok()
        {
            SMALL_PAGES.store(true, Ordering::Relaxed);
        }
    }
}

/// Holds fresh memory in large pages again where the system has them, after [`small_pages`]. Reading weights from them is up to
/// a sixth faster, because far fewer addresses are to be translated.
pub fn large_pages() {
    #[cfg(target_os = "linux")]
    if SMALL_PAGES.swap(false, Ordering::Relaxed) {
        // If this fails, memory stays in small pages, which is slower and otherwise the same.
        let _ = rustix::thread::disable_transparent_huge_pages(false);
    }
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
