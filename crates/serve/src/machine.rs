//! CPU and memory usage of this machine.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use sysinfo::{MINIMUM_CPU_UPDATE_INTERVAL, System};

/// CPU and memory usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct MachineUsage {
    /// CPU usage over all cores, from 0 to 1.
    processor: f64,
    /// Used memory in bytes.
    memory_used: u64,
    /// Total memory in bytes.
    memory: u64,
}

/// Samples the usage. Readings are cached briefly, so frequent calls are cheap and accurate.
pub(crate) struct Machine(Mutex<UsageSampler>);

struct UsageSampler {
    system: System,
    at: Option<Instant>,
    usage: MachineUsage,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(UsageSampler {
            system: System::new(),
            at: None,
            usage: MachineUsage::default(),
        }))
    }

    /// The current usage.
    pub(crate) fn now(&self) -> MachineUsage {
        let mut sampler = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_stale = |at: Instant| at.elapsed() > MINIMUM_CPU_UPDATE_INTERVAL.max(PAUSE);
        if sampler.at.is_none_or(is_stale) {
            sampler.system.refresh_cpu_usage();
            sampler.system.refresh_memory();
            sampler.usage = MachineUsage {
                processor: f64::from(sampler.system.global_cpu_usage()) / 100.0,
                memory_used: sampler.system.used_memory(),
                memory: sampler.system.total_memory(),
            };
            sampler.at = Some(Instant::now());
        }
        sampler.usage
    }
}

const PAUSE: Duration = Duration::from_millis(800);
