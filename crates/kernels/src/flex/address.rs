//! The addresses of vectors in the host's memory.

#![allow(unsafe_code)]

use std::ffi::c_void;

use burn_flex::{Flex, FlexTensor};

use super::buffer::{dense, elements, elements_mut, is_f32};
use crate::device::VectorMemory;

/// See [`crate::Backend::vector_memory`].
pub(super) fn vector_memory(vector: FlexTensor) -> Option<Box<dyn VectorMemory<Flex>>> {
    is_f32(&[&vector]).then(|| Box::new(HostVector(dense(vector))) as _)
}

/// A dense vector of f32.
struct HostVector(FlexTensor);

// SAFETY: the pointers are those of slices with the vector's elements, in memory that the tensor owns. `elements_mut` copies
// memory that another tensor shares.
unsafe impl VectorMemory<Flex> for HostVector {
    fn pointer(&self) -> *const c_void {
        elements(&self.0).as_ptr().cast()
    }

    fn pointer_mut(&mut self) -> *mut c_void {
        elements_mut(&mut self.0).as_mut_ptr().cast()
    }

    fn host(&self) -> Option<&[f32]> {
        Some(elements(&self.0))
    }

    fn host_mut(&mut self) -> Option<&mut [f32]> {
        Some(elements_mut(&mut self.0))
    }

    fn into_tensor(self: Box<Self>) -> FlexTensor {
        self.0
    }
}
