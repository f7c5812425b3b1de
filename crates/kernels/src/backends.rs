//! The trait for the other Burn backends that are compiled in. They use the reference implementations where
//! `crate::gpu` has no kernel.
//!
//! The attention of GPU backends never stores scores, because their memory limits the batch size.

#[cfg(feature = "gpu")]
use burn::tensor::ops::{FloatTensor, IntTensor};

#[cfg(feature = "ndarray")]
use crate::reference;

#[cfg(feature = "ndarray")]
impl crate::RowOps for burn_ndarray::NdArray {}

#[cfg(feature = "ndarray")]
impl crate::Recurrences for burn_ndarray::NdArray {}

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
        impl crate::RowOps for $backend {}

        impl crate::Recurrences for $backend {}

        impl crate::Backend for $backend {
            type Attention = crate::gpu::TiledAttention<$runtime>;

            #[inline]
            fn multiplies_in(
                precision: crate::Precision,
                device: &burn::tensor::Device<Self>,
            ) -> bool {
                crate::gpu::multiplies_in::<Self>(precision, device)
            }

            #[inline]
            fn matmul(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
                let kind = a.dtype;
                crate::gpu::matmul_to(a, b, kind)
            }

            #[inline]
            fn matmul_to(
                a: FloatTensor<Self>,
                b: FloatTensor<Self>,
                kind: burn::tensor::FloatDType,
            ) -> FloatTensor<Self> {
                crate::gpu::matmul_to(a, b, kind.into())
            }

            #[inline]
            fn linear(
                inputs: crate::LinearInputs<Self>,
                precision: crate::Precision,
            ) -> FloatTensor<Self> {
                crate::gpu::linear::<Self, $runtime>(None, inputs, precision)
            }

            #[inline]
            fn linear_training(
                inputs: crate::LinearInputs<Self>,
                precision: crate::Precision,
            ) -> (FloatTensor<Self>, [FloatTensor<Self>; 2]) {
                crate::gpu::linear_training::<Self, $runtime>(inputs, precision)
            }

            #[inline]
            fn linear_activation(
                kind: crate::Activation,
                inputs: crate::LinearInputs<Self>,
                precision: crate::Precision,
            ) -> FloatTensor<Self> {
                crate::gpu::linear::<Self, $runtime>(Some(kind), inputs, precision)
            }

            #[inline]
            fn gated(
                kind: crate::Activation,
                gate: FloatTensor<Self>,
                up: FloatTensor<Self>,
            ) -> FloatTensor<Self> {
                crate::gpu::gated(kind, gate, up)
            }

            #[inline]
            fn gated_backward(
                kind: crate::Activation,
                gate: FloatTensor<Self>,
                up: FloatTensor<Self>,
                grad: FloatTensor<Self>,
            ) -> crate::GatedGradients<Self> {
                let [gate, up] = crate::gpu::gated_backward(kind, gate, up, grad);
                crate::GatedGradients { gate, up }
            }

            #[inline]
            fn gated_linear(
                kind: crate::Activation,
                gate: crate::LinearInputs<Self>,
                up: crate::LinearInputs<Self>,
                precision: crate::Precision,
            ) -> FloatTensor<Self> {
                crate::gpu::gated_linear::<Self, $runtime>(kind, gate, up, precision)
            }

            #[inline]
            fn keeps_packed_weights() -> bool {
                true
            }

            #[inline]
            fn packed_from_host(
                matrix: crate::cpu::packed::PackedMatrix,
                device: &burn::tensor::Device<Self>,
            ) -> crate::PackedWeight<Self> {
                crate::gpu::packed_from_host::<Self, $runtime>(&matrix, device)
            }

            #[inline]
            fn unpack(weight: crate::PackedWeight<Self>) -> FloatTensor<Self> {
                crate::gpu::unpack::<Self, $runtime>(weight)
            }

            #[inline]
            fn linear_packed(
                x: FloatTensor<Self>,
                weight: crate::PackedWeight<Self>,
                bias: Option<FloatTensor<Self>>,
                residual: Option<FloatTensor<Self>>,
                precision: crate::Precision,
            ) -> FloatTensor<Self> {
                crate::gpu::linear_packed::<Self, $runtime>(
                    None, x, weight, bias, residual, precision,
                )
            }

            #[inline]
            fn linear_packed_activation(
                kind: crate::Activation,
                x: FloatTensor<Self>,
                weight: crate::PackedWeight<Self>,
                bias: Option<FloatTensor<Self>>,
                precision: crate::Precision,
            ) -> FloatTensor<Self> {
                crate::gpu::linear_packed::<Self, $runtime>(
                    Some(kind),
                    x,
                    weight,
                    bias,
                    None,
                    precision,
                )
            }

            #[inline]
            fn embedding_packed(
                table: crate::PackedWeight<Self>,
                ids: IntTensor<Self>,
            ) -> FloatTensor<Self> {
                crate::gpu::embedding_packed::<Self, $runtime>(table, ids)
            }

            #[inline]
            fn normalize(
                kind: crate::Normalization,
                x: FloatTensor<Self>,
                gain: Option<FloatTensor<Self>>,
                bias: Option<FloatTensor<Self>>,
            ) -> FloatTensor<Self> {
                crate::gpu::normalize(kind, x, gain, bias)
            }

            #[inline]
            fn normalize_backward(
                kind: crate::Normalization,
                x: FloatTensor<Self>,
                gain: Option<FloatTensor<Self>>,
                bias: bool,
                grad: FloatTensor<Self>,
                added: Option<FloatTensor<Self>>,
            ) -> crate::NormGradients<Self> {
                let (x, gain, bias) =
                    crate::gpu::normalize_backward(kind, x, gain, bias, grad, added);
                crate::NormGradients { x, gain, bias }
            }

            #[inline]
            fn linear_backward(
                x: FloatTensor<Self>,
                weight: FloatTensor<Self>,
                grad: FloatTensor<Self>,
                added: Option<FloatTensor<Self>>,
                wanted: [bool; 3],
                precision: crate::Precision,
            ) -> crate::LinearGradients<Self> {
                crate::gpu::linear_backward::<Self, $runtime>(
                    x, weight, grad, added, wanted, precision,
                )
            }

            #[inline]
            fn embedding_backward(
                table: FloatTensor<Self>,
                ids: IntTensor<Self>,
                grad: FloatTensor<Self>,
                added: Option<FloatTensor<Self>>,
            ) -> FloatTensor<Self> {
                crate::gpu::embedding_backward(table, ids, grad, added)
            }

            #[inline]
            fn sum_of_squares(x: FloatTensor<Self>) -> FloatTensor<Self> {
                crate::gpu::sum_of_squares(x)
            }

            #[inline]
            fn total_sum_of_squares(
                tensors: Vec<FloatTensor<Self>>,
            ) -> Option<FloatTensor<Self>> {
                crate::gpu::total_sum_of_squares(tensors)
            }

            #[inline]
            fn chunk_sums_of_squares(x: FloatTensor<Self>) -> FloatTensor<Self> {
                crate::gpu::chunk_sums_of_squares(x)
            }

            #[inline]
            fn adamw(
                inputs: Vec<crate::AdamWInputs<Self>>,
                factor: Option<FloatTensor<Self>>,
            ) -> Vec<crate::AdamWOutputs<Self>> {
                crate::gpu::adamw::<Self, $runtime>(inputs, factor)
            }

            #[inline]
            fn head_loss(inputs: crate::HeadLossInputs<Self>) -> FloatTensor<Self> {
                crate::gpu::head_loss::<Self, $runtime>(inputs)
            }

            #[inline]
            fn head_loss_gradients(
                inputs: crate::HeadLossInputs<Self>,
            ) -> crate::HeadLossGradients<Self> {
                crate::gpu::head_loss_gradients::<Self, $runtime>(inputs, None, true)
            }

            #[inline]
            fn head_loss_hidden_gradient(
                inputs: crate::HeadLossInputs<Self>,
            ) -> (FloatTensor<Self>, FloatTensor<Self>) {
                let made = crate::gpu::head_loss_gradients::<Self, $runtime>(inputs, None, false);
                (made.loss, made.hidden)
            }

            #[inline]
            fn head_losses(inputs: crate::HeadLossInputs<Self>) -> FloatTensor<Self> {
                crate::gpu::head_losses::<Self, $runtime>(inputs)
            }

            #[inline]
            fn head_losses_backward(
                inputs: crate::HeadLossInputs<Self>,
                grads: FloatTensor<Self>,
                trains_weights: bool,
            ) -> crate::HeadLossGradients<Self> {
                let grads = Some(grads);
                crate::gpu::head_loss_gradients::<Self, $runtime>(inputs, grads, trains_weights)
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

/// Implements the trait for a backend, and for the one that counts its work.
#[cfg(feature = "gpu")]
macro_rules! on_a_gpu_and_metered {
    ($backend:ty, $metered:ty, $runtime:ty $(, $address:expr)?) => {
        on_a_gpu!($backend, $runtime $(, $address)?);
        on_a_gpu!($metered, crate::meter::Metered<$runtime>);
    };
}

// `Wgpu` and `WebGpu` are the same type, and so are `Vulkan` and `Metal`: they only differ in how they store
// booleans.
#[cfg(feature = "wgpu")]
on_a_gpu_and_metered!(
    burn::backend::WebGpu,
    crate::meter::WebGpu,
    burn::backend::wgpu::WgpuRuntime
);

#[cfg(all(feature = "vulkan", not(feature = "metal")))]
on_a_gpu_and_metered!(
    burn::backend::Vulkan,
    crate::meter::Vulkan,
    burn::backend::wgpu::WgpuRuntime
);

#[cfg(feature = "metal")]
on_a_gpu_and_metered!(
    burn::backend::Metal,
    crate::meter::Metal,
    burn::backend::wgpu::WgpuRuntime
);

#[cfg(feature = "cuda")]
on_a_gpu_and_metered!(
    burn::backend::Cuda,
    crate::meter::Cuda,
    burn::cubecl::cuda::CudaRuntime,
    |tensor| {
        let resource = tensor.client.get_resource(tensor.handle.clone()).ok()?;
        Some(resource.resource().ptr)
    }
);

#[cfg(feature = "rocm")]
on_a_gpu_and_metered!(
    burn::backend::Rocm,
    crate::meter::Rocm,
    burn::cubecl::hip::HipRuntime
);
