//! Which of Burn's backends are compiled in; each takes the composed operations; [`crate::flex`] is the one that has its own.

#[cfg(feature = "ndarray")]
impl crate::Backend for burn_ndarray::NdArray {}

/// A backend on a runtime of CubeCL.
#[cfg(feature = "gpu")]
macro_rules! on_a_gpu {
    ($backend:ty, $runtime:ty) => {
        impl crate::Backend for $backend {
            fn multiplies_in(
                precision: crate::Precision,
                device: &burn::tensor::Device<Self>,
            ) -> bool {
                crate::gpu::multiplies_in::<Self>(precision, device)
            }

            fn works_behind() -> bool {
                true
            }

            fn memory(device: &burn::tensor::Device<Self>) -> Option<crate::DeviceMemory> {
                crate::gpu::memory::<Self, $runtime>(device)
            }
        }
    };
}

// `Wgpu` and `WebGpu` are one type, and so are `Vulkan` and `Metal`: they differ in how booleans are stored.
#[cfg(feature = "wgpu")]
on_a_gpu!(burn::backend::WebGpu, burn::backend::wgpu::WgpuRuntime);

#[cfg(all(feature = "vulkan", not(feature = "metal")))]
on_a_gpu!(burn::backend::Vulkan, burn::backend::wgpu::WgpuRuntime);

#[cfg(feature = "metal")]
on_a_gpu!(burn::backend::Metal, burn::backend::wgpu::WgpuRuntime);

#[cfg(feature = "cuda")]
on_a_gpu!(burn::backend::Cuda, burn::cubecl::cuda::CudaRuntime);

#[cfg(feature = "rocm")]
on_a_gpu!(burn::backend::Rocm, burn::cubecl::hip::HipRuntime);
