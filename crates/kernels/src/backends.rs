//! The trait for the other Burn backends that are compiled in. They use the reference implementations; only
//! [`crate::flex`] has kernels.
//!
//! GPU backends use blocked attention because their memory limits the batch size.

#[cfg(feature = "gpu")]
use burn::tensor::ops::FloatTensor;

#[cfg(any(feature = "gpu", feature = "ndarray"))]
use crate::reference;

#[cfg(feature = "ndarray")]
impl crate::Backend for burn_ndarray::NdArray {
    type Attention = reference::WholeAttention;
}

/// Implements the trait for a backend on a CubeCL runtime. The optional last argument returns the address of a tensor's
/// memory. The functions are inlined so that only crates that use a backend compile it; compiled in this crate, they cost
/// every build several minutes.
#[cfg(feature = "gpu")]
macro_rules! on_a_gpu {
    ($backend:ty, $runtime:ty $(, $address:expr)?) => {
        impl crate::Backend for $backend {
            type Attention = reference::BlockedAttention;

            #[inline]
            fn multiplies_in(
                precision: crate::Precision,
                device: &burn::tensor::Device<Self>,
            ) -> bool {
                crate::gpu::multiplies_in::<Self>(precision, device)
            }

            #[inline]
            fn matmul(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
                crate::gpu::matmul(a, b)
            }

            #[inline]
            fn is_asynchronous() -> bool {
                true
            }

            #[inline]
            fn largest_buffer(device: &burn::tensor::Device<Self>) -> Option<u64> {
                Some(crate::gpu::largest_buffer::<$runtime>(device))
            }

            #[inline]
            fn block_bytes(device: &burn::tensor::Device<Self>) -> u64 {
                crate::gpu::block_bytes::<$runtime>(device)
            }

            #[inline]
            fn memory(device: &burn::tensor::Device<Self>) -> Option<crate::DeviceMemory> {
                crate::gpu::memory::<Self, $runtime>(device)
            }

            $(
                #[inline]
                fn vector_memory(
                    vector: FloatTensor<Self>,
                ) -> Option<Box<dyn crate::VectorMemory<Self>>> {
                    crate::gpu::vector_memory::<Self, $runtime>(vector, $address)
                }
            )?
        }
    };
}

// `Wgpu` and `WebGpu` are the same type, and so are `Vulkan` and `Metal`: they only differ in how they store
// booleans.
#[cfg(feature = "wgpu")]
on_a_gpu!(burn::backend::WebGpu, burn::backend::wgpu::WgpuRuntime);

#[cfg(all(feature = "vulkan", not(feature = "metal")))]
on_a_gpu!(burn::backend::Vulkan, burn::backend::wgpu::WgpuRuntime);

#[cfg(feature = "metal")]
on_a_gpu!(burn::backend::Metal, burn::backend::wgpu::WgpuRuntime);

#[cfg(feature = "cuda")]
on_a_gpu!(
    burn::backend::Cuda,
    burn::cubecl::cuda::CudaRuntime,
    |tensor| {
        let resource = tensor.client.get_resource(tensor.handle.clone()).ok()?;
        Some(resource.resource().ptr)
    }
);

#[cfg(feature = "rocm")]
on_a_gpu!(burn::backend::Rocm, burn::cubecl::hip::HipRuntime);
