//! The memory of a device.

/// The memory of a device that is not the processor, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// In tensors that there are.
    pub in_use: u64,
    /// Taken from the device, whether in use or kept for tensors to come.
    pub reserved: u64,
}
