//! The hardware and system of this machine.

use serde::Serialize;
use sysinfo::System;

use super::devices::{self, DeviceInfo, Kind};
use super::{BackendName, Placement};
use crate::output::size;

/// The hardware and system of this machine.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The backend's candidate devices: several only if the driver chose the device.
    devices: Vec<DeviceInfo>,
    /// The CPU's name and number of threads.
    cpu: String,
    /// Main memory in bytes.
    memory_bytes: Option<u64>,
    system: String,
}

impl Machine {
    /// Describes this machine with the device of a backend.
    pub fn of(placement: Placement) -> Self {
        let mut devices = devices::of(placement.backend);
        if let Some(number) = placement.number() {
            devices.retain(|device| device.number == number);
        }
        let cpu = devices::of(BackendName::Flex).into_iter().next();
        let (cpu, memory_bytes) = match cpu {
            Some(cpu) => (cpu.name, cpu.memory_bytes),
            None => (std::env::consts::ARCH.to_owned(), None),
        };
        Self {
            devices,
            cpu,
            memory_bytes,
            system: System::long_os_version().unwrap_or_else(|| std::env::consts::OS.to_owned()),
        }
    }

    /// Returns true if every device is a CPU or is emulated on one.
    pub fn computes_on_cpu(&self) -> bool {
        !self.devices.is_empty() && self.devices.iter().all(|device| device.kind == Kind::Cpu)
    }

    /// Rows of a table with names and values.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        for device in &self.devices {
            rows.push(("device", format!("{}, {}", device.name, device.kind.name())));
            if let Some(driver) = &device.driver {
                rows.push(("driver", driver.clone()));
            }
            if let Some(bytes) = device.memory_bytes {
                rows.push(("device memory", size(bytes)));
            }
            if let Some(bytes) = device.largest_buffer_bytes {
                rows.push(("largest buffer", size(bytes)));
            }
        }
        rows.push(("CPU", self.cpu.clone()));
        if let Some(bytes) = self.memory_bytes {
            rows.push(("memory", size(bytes)));
        }
        rows.push(("system", self.system.clone()));
        rows
    }
}
