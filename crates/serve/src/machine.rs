//! The load of this machine.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use sysinfo::{MINIMUM_CPU_UPDATE_INTERVAL, System};

/// Its CPU and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Use {
    /// The share of all cores that is busy, 0 to 1.
    processor: f64,
    /// Bytes.
    memory_used: u64,
    /// Bytes.
    memory: u64,
}

/// Looks at it, at most as often as looking makes sense, whoever asks.
pub(crate) struct Machine(Mutex<Look>);

struct Look {
    system: System,
    at: Option<Instant>,
    found: Use,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Look {
            system: System::new(),
            at: None,
            found: Use::default(),
        }))
    }

    /// The current load.
    pub(crate) fn now(&self) -> Use {
        let mut look = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let long_ago = |at: Instant| at.elapsed() > MINIMUM_CPU_UPDATE_INTERVAL.max(PAUSE);
        if look.at.is_none_or(long_ago) {
            look.system.refresh_cpu_usage();
            look.system.refresh_memory();
            look.found = Use {
                processor: f64::from(look.system.global_cpu_usage()) / 100.0,
                memory_used: look.system.used_memory(),
                memory: look.system.total_memory(),
            };
            look.at = Some(Instant::now());
        }
        look.found
    }
}

const PAUSE: Duration = Duration::from_millis(800);
