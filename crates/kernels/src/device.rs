//! The memory of a device.

/// The memory of a device other than the CPU, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// In tensors that there are.
    pub in_use: u64,
    /// Taken from the device, whether in use or kept for tensors to come.
    pub reserved: u64,
}
