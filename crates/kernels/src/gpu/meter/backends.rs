//! Burn's GPU backends on the metered runtime.

use burn_cubecl::CubeBackend;
use burn_fusion::Fusion;

use super::Metered;

/// [`burn::backend::WebGpu`] with counters.
#[cfg(feature = "wgpu")]
pub type WebGpu = Fusion<CubeBackend<Metered<burn::backend::wgpu::WgpuRuntime>, f32, i32, u32>>;

/// [`burn::backend::Vulkan`] with counters.
#[cfg(feature = "vulkan")]
pub type Vulkan = Fusion<CubeBackend<Metered<burn::backend::wgpu::WgpuRuntime>, f32, i32, u8>>;

/// [`burn::backend::Metal`] with counters.
#[cfg(feature = "metal")]
pub type Metal = Fusion<CubeBackend<Metered<burn::backend::wgpu::WgpuRuntime>, f32, i32, u8>>;

/// [`burn::backend::Cuda`] with counters.
#[cfg(feature = "cuda")]
pub type Cuda = Fusion<CubeBackend<Metered<burn::cubecl::cuda::CudaRuntime>, f32, i32, u8>>;

/// [`burn::backend::Rocm`] with counters.
#[cfg(feature = "rocm")]
pub type Rocm = Fusion<CubeBackend<Metered<burn::cubecl::hip::HipRuntime>, f32, i32, u8>>;
