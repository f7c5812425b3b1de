//! Which of Burn's backends are compiled in; each takes the composed operations; [`crate::flex`] is the one that has its own.
//!
//! Those of GPUs take the composed attention that goes by blocks: their memory is what bounds a batch.

#[cfg(feature = "gpu")]
use burn::tensor::ops::{FloatTensor, IntTensor};

#[cfg(feature = "gpu")]
use crate::reference;

#[cfg(feature = "ndarray")]
impl crate::Backend for burn_ndarray::NdArray {}

/// A backend on a runtime of CubeCL. Its functions are inlined so that those who use a backend compile it: as functions of this
/// crate they take minutes of everyone's time.
#[cfg(feature = "gpu")]
macro_rules! on_a_gpu {
    ($backend:ty, $runtime:ty) => {
        impl crate::Backend for $backend {
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
            fn attention(
                q: FloatTensor<Self>,
                k: FloatTensor<Self>,
                v: FloatTensor<Self>,
                documents: Option<IntTensor<Self>>,
                options: crate::AttentionOptions,
            ) -> FloatTensor<Self> {
                let options = options.usable::<Self>(&q);
                reference::blocked_attention::<Self>(q, k, v, documents, options, None)
            }

            #[inline]
            fn attention_training(
                q: FloatTensor<Self>,
                k: FloatTensor<Self>,
                v: FloatTensor<Self>,
                documents: Option<IntTensor<Self>>,
                options: crate::AttentionOptions,
            ) -> (FloatTensor<Self>, crate::AttentionState<Self>) {
                let options = options.usable::<Self>(&q);
                let (output, state) = reference::blocked_attention_training::<Self>(
                    q, k, v, documents, options, None,
                );
                (output, crate::AttentionState::Blocks(state))
            }

            #[inline]
            fn self_attention(
                qkv: FloatTensor<Self>,
                angles: Option<crate::RotaryAngles<Self>>,
                documents: Option<IntTensor<Self>>,
                how: crate::SelfAttention,
            ) -> FloatTensor<Self> {
                let how = how.usable::<Self>(&qkv);
                reference::blocked_self_attention::<Self>(qkv, angles, documents, how, None)
            }

            #[inline]
            fn self_attention_training(
                qkv: FloatTensor<Self>,
                angles: Option<crate::RotaryAngles<Self>>,
                documents: Option<IntTensor<Self>>,
                how: crate::SelfAttention,
            ) -> (FloatTensor<Self>, crate::AttentionState<Self>) {
                let how = how.usable::<Self>(&qkv);
                let (output, state) = reference::blocked_self_attention_training::<Self>(
                    qkv, angles, documents, how, None,
                );
                (output, crate::AttentionState::Blocks(state))
            }

            #[inline]
            fn works_behind() -> bool {
                true
            }

            #[inline]
            fn largest_buffer(device: &burn::tensor::Device<Self>) -> Option<u64> {
                Some(crate::gpu::largest_buffer::<$runtime>(device))
            }

            #[inline]
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
