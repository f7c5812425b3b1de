//! Vectors whose memory a library other than Burn accesses by its address, as NCCL and CUDA-aware MPI libraries access that of GPUs.

use burn::tensor::{Tensor, TensorPrimitive};

use crate::Backend;
use crate::device::VectorMemory;

/// A contiguous vector of f32, `[n]`, in memory with an address: of the host for flex, of the GPU for CUDA.
///
/// With the feature `mpi`, it is a buffer of MPI's exchanges (`mpi::traits::Buffer` and `BufferMut`). For the memory of a
/// GPU, the MPI library must be CUDA-aware.
pub struct AddressedVector<B: Backend> {
    memory: Box<dyn VectorMemory<B>>,
    length: usize,
}

impl<B: Backend> AddressedVector<B> {
    /// Waits for the operations that compute `vector`, `[n]`, and copies it if another tensor shares its memory. `None` if
    /// the backend's memory has no addresses, or the elements are not f32.
    pub fn new(vector: Tensor<B, 1>) -> Option<Self> {
        let length = vector.dims()[0];
        let memory = B::vector_memory(vector.into_primitive().tensor())?;
        Some(Self { memory, length })
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The elements, if they are in the host's memory.
    pub fn host(&self) -> Option<&[f32]> {
        self.memory.host()
    }

    /// The elements for writing, if they are in the host's memory.
    pub fn host_mut(&mut self) -> Option<&mut [f32]> {
        self.memory.host_mut()
    }

    #[cfg(any(feature = "mpi", feature = "cuda"))]
    pub(crate) fn memory(&self) -> &dyn VectorMemory<B> {
        &*self.memory
    }

    #[cfg(any(feature = "mpi", feature = "cuda"))]
    pub(crate) fn memory_mut(&mut self) -> &mut dyn VectorMemory<B> {
        &mut *self.memory
    }

    /// The vector as a tensor, `[n]`.
    pub fn into_tensor(self) -> Tensor<B, 1> {
        Tensor::from_primitive(TensorPrimitive::Float(self.memory.into_tensor()))
    }
}
