//! The memory that the process uses and may still allocate, as reported by the system, in bytes.

mod available;

use std::fs;

pub use available::{Available, MemoryLimit, available};

/// The current resident memory of the process. `None` if the system does not report it.
pub fn resident() -> Option<u64> {
    memory_stats::memory_stats().map(|stats| stats.physical_mem as u64)
}

/// The peak resident memory of the process so far. `None` except on Linux.
pub fn peak() -> Option<u64> {
    kib_of("/proc/self/status", "VmHWM:")
}

/// [`peak`] in whole MiB.
pub fn peak_rss_mib() -> Option<u64> {
    peak().map(|bytes| bytes >> 20)
}

/// Reads a line `NAME number kB` of a file, in bytes.
fn kib_of(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_peak_includes_freed_memory() {
        const BYTES: usize = 64 << 20;
        let before = resident().expect("Linux reports it");
        let touched = vec![1u8; BYTES];
        let with = resident().expect("Linux reports it");
        assert!(with >= before + (BYTES as u64) / 10 * 9, "{before}, {with}");
        drop(touched);
        assert!(peak().expect("Linux reports it") >= before + (BYTES as u64) / 10 * 9);
        assert!(available().expect("Linux reports it").bytes > 0);
    }
}
