//! Memory use of a device.

/// Memory use of a device other than the CPU, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Memory of live tensors.
    pub in_use: u64,
    /// Memory reserved from the device: in use, or kept for future tensors.
    pub reserved: u64,
}
