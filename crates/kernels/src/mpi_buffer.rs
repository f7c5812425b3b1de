//! Addressed vectors as buffers of MPI's exchanges.

#![allow(unsafe_code)]

use std::ffi::c_void;

use mpi::Count;
use mpi::datatype::SystemDatatype;
use mpi::traits::{AsDatatype, Buffer, BufferMut, Collection, Equivalence, Pointer, PointerMut};

use crate::{AddressedVector, Backend};

// SAFETY: the elements are f32.
unsafe impl<B: Backend> AsDatatype for AddressedVector<B> {
    type Out = SystemDatatype;

    fn as_datatype(&self) -> Self::Out {
        f32::equivalent_datatype()
    }
}

// SAFETY: at most the number of elements. MPI's counts are of 32 bits.
unsafe impl<B: Backend> Collection for AddressedVector<B> {
    fn count(&self) -> Count {
        Count::try_from(self.len()).unwrap_or(Count::MAX)
    }
}

// SAFETY: by the requirements of `VectorMemory`.
unsafe impl<B: Backend> Pointer for AddressedVector<B> {
    fn pointer(&self) -> *const c_void {
        self.memory().pointer()
    }
}

// SAFETY: by the requirements of `VectorMemory`.
unsafe impl<B: Backend> PointerMut for AddressedVector<B> {
    fn pointer_mut(&mut self) -> *mut c_void {
        self.memory_mut().pointer_mut()
    }
}

// SAFETY: the pointer is the address of `count` elements of f32, which the borrow of the vector keeps. If they are in the
// memory of a GPU, CUDA reserves the addresses in this process, so a library that takes them for the host's faults.
unsafe impl<B: Backend> Buffer for AddressedVector<B> {}
// SAFETY: as above, and no other tensor shares the memory.
unsafe impl<B: Backend> BufferMut for AddressedVector<B> {}
