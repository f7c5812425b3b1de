//! The memory of a device: its use, and the part of it that holds a vector.

#![allow(unsafe_code)]

use std::ffi::c_void;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

/// Memory use of a device other than the CPU, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Memory of live tensors.
    pub in_use: u64,
    /// Memory reserved from the device: in use, or kept for future tensors.
    pub reserved: u64,
}

/// The memory of a contiguous vector of f32, without operations of Burn that still read or write it.
///
/// # Safety
/// Until [`VectorMemory::into_tensor`], the pointers are the address of as many initialized f32 as the vector has elements,
/// in the memory of the host or of a device. No other tensor shares the memory behind [`VectorMemory::pointer_mut`].
pub unsafe trait VectorMemory<B: Backend>: Send {
    /// The address for reading.
    fn pointer(&self) -> *const c_void;

    /// The address for writing.
    fn pointer_mut(&mut self) -> *mut c_void;

    /// The elements, if they are in the host's memory.
    fn host(&self) -> Option<&[f32]>;

    /// The elements for writing, if they are in the host's memory.
    fn host_mut(&mut self) -> Option<&mut [f32]>;

    /// Gives the memory back to Burn.
    fn into_tensor(self: Box<Self>) -> FloatTensor<B>;
}
