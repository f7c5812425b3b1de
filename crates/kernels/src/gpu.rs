//! The operations of the GPU backends, whose runtime is CubeCL.
//!
//! | module | contents |
//! |---|---|
//! | `queue`, `launch` | own kernels in Burn's queue, and what their launches share |
//! | `attention`, `norm`, `head_loss`, `linear`, `columns`, `embedding` | operations of the model and their gradients |
//! | `adamw`, `squares` | the optimizer's update, and the norm of all gradients |
//! | `packed` | unpacking and products of packed weights |
//! | `activation` | activations |
//! | `matmul` | the choice of matrix products, and the kernel for a few rows |
//! | `cublas` | large matrix products by NVIDIA's library, where it is installed |
//! | `nccl` | exchanges between the GPUs of several processes |
//! | `meter` | counters of the work of a device |
//! | `address` | the addresses of vectors in device memory |

mod activation;
mod adamw;
#[cfg(any(feature = "cuda", all(test, feature = "vulkan")))]
mod address;
mod attention;
mod columns;
#[cfg(any(feature = "cuda", test))]
pub mod cublas;
mod embedding;
mod head_loss;
mod launch;
mod linear;
mod matmul;
pub mod meter;
#[cfg(feature = "cuda")]
pub mod nccl;
mod norm;
mod packed;
mod queue;
mod squares;

use burn::cubecl::Runtime;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Device};

use crate::{DeviceMemory, Precision, reference};

pub use activation::{gated, gated_backward};
pub use adamw::adamw;
#[cfg(feature = "cuda")]
pub use address::vector_memory;
pub use attention::TiledAttention;
pub use embedding::embedding_backward;
pub use head_loss::{head_loss, head_loss_gradients, head_losses};
pub use linear::{gated_linear, linear, linear_backward, linear_packed, linear_training};
pub use matmul::{matmul_to, products_by_every_kernel};
pub use norm::{normalize, normalize_backward};
pub use packed::{embedding_packed, packed_from_host, unpack};
pub use squares::{chunk_sums_of_squares, sum_of_squares, total_sum_of_squares};

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
    // Queued operations have not allocated their memory yet.
    B::sync(device).ok()?;
    let usage = R::client(device).memory_usage().ok()?;
    Some(DeviceMemory {
        in_use: usage.bytes_in_use,
        reserved: usage.bytes_reserved,
    })
}

/// See [`crate::Backend::largest_buffer`]: the largest page of the runtime's allocator. On `wgpu` that is the
/// device's limit for a buffer binding, on CUDA and ROCm a quarter of the device's memory.
pub fn largest_buffer<R: Runtime>(device: &R::Device) -> u64 {
    let memory = R::client(device).properties().memory.clone();
    // The allocator rounds its pages down to a multiple of the alignment.
    memory.max_page_size / memory.alignment.max(1) * memory.alignment.max(1)
}

/// See [`crate::Backend::block_bytes`]: a 64th of the largest buffer, which is a 256th of the memory on CUDA and
/// ROCm, between 64 MiB and 1 GiB.
pub fn block_bytes<R: Runtime>(device: &R::Device) -> u64 {
    (largest_buffer::<R>(device) / 64).clamp(reference::BLOCK_BYTES, 1 << 30)
}
