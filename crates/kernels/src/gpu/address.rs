//! The addresses of vectors in GPU memory.
//!
//! Untested on a GPU: no machine of the project has a CUDA-aware MPI library. The tests cover the conversions from and to
//! Burn's tensors, on Vulkan.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::marker::PhantomData;

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{DType, TensorMetadata};
use burn_cubecl::CubeRuntime;
use burn_cubecl::fusion::FusionCubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use burn_fusion::client::GlobalFusionClient;
use burn_fusion::stream::{Operation, OperationStreams};
use burn_ir::{BackendIr, HandleContainer, InitOperationIr, OperationIr, OperationOutput};

use super::queue::{Queued, Unfused};
use crate::Backend;
use crate::device::VectorMemory;

/// See [`crate::Backend::vector_memory`]. `address` returns the address of a tensor's memory on the device.
pub fn vector_memory<B, R>(
    vector: Queued<R>,
    address: impl FnOnce(&CubeTensor<R>) -> Option<u64>,
) -> Option<Box<dyn VectorMemory<B>>>
where
    B: Backend<FloatTensorPrimitive = Queued<R>>,
    R: CubeRuntime,
{
    if vector.dtype() != DType::F32 {
        return None;
    }
    let client = vector.client.clone();
    // Executes the queued operations.
    let tensor = into_contiguous(client.resolve_tensor_float::<Unfused<R>>(vector));
    let tensor = match tensor.can_mut() {
        true => tensor,
        false => tensor.copy(),
    };
    // The library does not wait for the device's stream.
    Unfused::<R>::sync(&tensor.device).ok()?;
    let address = usize::try_from(address(&tensor)?).ok()?;
    Some(Box::new(DeviceVector {
        tensor,
        address,
        client,
    }))
}

/// A vector on a GPU that no queued operation reads or writes.
struct DeviceVector<R: CubeRuntime> {
    /// Owns the memory.
    tensor: CubeTensor<R>,
    /// The address of the tensor's first element on the device.
    address: usize,
    client: GlobalFusionClient<FusionCubeRuntime<R>>,
}

// SAFETY: the tensor is contiguous, has elements of f32, owns its memory until `into_tensor`, and is its only handle. The
// device was synchronized after the operations that read or wrote the memory.
unsafe impl<B, R> VectorMemory<B> for DeviceVector<R>
where
    B: Backend<FloatTensorPrimitive = Queued<R>>,
    R: CubeRuntime,
{
    fn pointer(&self) -> *const c_void {
        std::ptr::without_provenance(self.address)
    }

    fn pointer_mut(&mut self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.address)
    }

    fn host(&self) -> Option<&[f32]> {
        None
    }

    fn host_mut(&mut self) -> Option<&mut [f32]> {
        None
    }

    fn into_tensor(self: Box<Self>) -> Queued<R> {
        let Self { tensor, client, .. } = *self;
        let (shape, dtype) = (tensor.shape(), tensor.dtype);
        let handle = Unfused::<R>::float_tensor_handle(tensor);
        let created =
            InitOperationIr::create(shape, dtype, || client.register_tensor_handle(handle));
        let operation = Registered::<R>(PhantomData);
        client
            .register(
                OperationStreams::default(),
                OperationIr::Init(created),
                operation,
            )
            .output()
    }
}

/// The creation of a tensor whose memory exists.
#[derive(Debug)]
struct Registered<R>(PhantomData<R>);

impl<R: CubeRuntime> Operation<FusionCubeRuntime<R>> for Registered<R> {
    fn execute(&self, _handles: &mut HandleContainer<<Unfused<R> as BackendIr>::Handle>) {}
}

#[cfg(all(test, feature = "vulkan"))]
mod tests {
    use burn::backend::Vulkan;
    use burn::backend::wgpu::WgpuRuntime;
    use burn::tensor::{Tensor, TensorPrimitive};

    use super::*;

    #[test]
    fn vectors_are_unchanged_by_conversions_to_memory_and_back() {
        let device = Default::default();
        let vector = Tensor::<Vulkan, 1>::from_floats([1.0, -2.0, 3.5, 0.25, 7.0], &device);
        // Queued operations, a view of a longer vector, and a vector that has a second handle.
        let doubled = vector.clone() * 2.0;
        for (vector, expected) in [
            (doubled, vec![2.0, -4.0, 7.0, 0.5, 14.0]),
            (vector.clone().narrow(0, 1, 3), vec![-2.0, 3.5, 0.25]),
            (vector.clone(), vec![1.0, -2.0, 3.5, 0.25, 7.0]),
        ] {
            let primitive = vector.into_primitive().tensor();
            let memory = vector_memory::<Vulkan, WgpuRuntime>(primitive, |tensor| {
                assert!(tensor.is_contiguous() && tensor.can_mut());
                Some(64)
            });
            let memory = memory.unwrap();
            assert_eq!(memory.pointer() as usize, 64);
            let tensor = TensorPrimitive::Float(memory.into_tensor());
            let tensor = Tensor::<Vulkan, 1>::from_primitive(tensor);
            // Further operations.
            let values = (tensor + 1.0).into_data().to_vec::<f32>().unwrap();
            let expected: Vec<f32> = expected.into_iter().map(|x| x + 1.0).collect();
            assert_eq!(values, expected);
        }
        let values = vector.into_data().to_vec::<f32>().unwrap();
        assert_eq!(values, [1.0, -2.0, 3.5, 0.25, 7.0]);
    }
}
