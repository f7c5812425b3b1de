//! What the backends of GPUs have in common: their runtime is CubeCL.

use burn::cubecl::Runtime;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Device};

use crate::{DeviceMemory, Precision};

/// See [`crate::Backend::multiplies_in`].
pub fn multiplies_in<B: Backend>(precision: Precision, device: &Device<B>) -> bool {
    match precision {
        Precision::F32 => true,
        Precision::Bf16 => B::supports_dtype(device, DType::BF16),
        Precision::F16 => B::supports_dtype(device, DType::F16),
    }
}

/// See [`crate::Backend::memory`].
pub fn memory<B: Backend<Device = R::Device>, R: Runtime>(
    device: &R::Device,
) -> Option<DeviceMemory> {
    // What waits in the queue has not taken its memory yet.
    B::sync(device).ok()?;
    let usage = R::client(device).memory_usage().ok()?;
    Some(DeviceMemory {
        in_use: usage.bytes_in_use,
        reserved: usage.bytes_reserved,
    })
}
