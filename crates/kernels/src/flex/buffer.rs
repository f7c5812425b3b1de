//! Between flex's tensors and slices.

#![allow(unsafe_code)]

use std::borrow::Cow;

use burn::tensor::{Bytes, DType, Shape};
use burn_flex::{FlexTensor, Layout};

/// Whether all are f32.
pub(super) fn is_f32(tensors: &[&FlexTensor]) -> bool {
    tensors.iter().all(|tensor| tensor.dtype() == DType::F32)
}

/// The same elements, one after another from the beginning of their memory, and nothing else in it.
pub(super) fn dense(tensor: FlexTensor) -> FlexTensor {
    // What is dense already comes back as it is; a borrowed copy of it would make its memory shared.
    let layout = tensor.layout();
    let whole = layout.num_elements() * size_of::<f32>() == tensor.bytes().len();
    match layout.is_contiguous() && layout.start_offset() == 0 && whole {
        true => tensor,
        false => tensor.to_contiguous(),
    }
}

/// The elements of a dense tensor.
pub(super) fn elements(tensor: &FlexTensor) -> &[f32] {
    tensor.storage()
}

/// A tensor that `fill` writes every element of, before it reads any.
pub(super) fn filled(shape: impl Into<Shape>, fill: impl FnOnce(&mut [f32])) -> FlexTensor {
    let shape = shape.into();
    let len = shape.num_elements();
    let mut elements: Vec<f32> = Vec::with_capacity(len);
    // SAFETY: the memory is the vector's own and large enough. What it holds is not known, but any bits are an f32, and
    // `fill` writes all of them before they are read. Zeroing first would cost a pass over memory for each operation.
    fill(unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr(), len) });
    // SAFETY: `len` elements fit, and have been written.
    unsafe { elements.set_len(len) };
    FlexTensor::new(
        Bytes::from_elems(elements),
        Layout::contiguous(shape),
        DType::F32,
    )
}

/// A number as a tensor `[1]`.
pub(super) fn number(value: f64) -> FlexTensor {
    filled([1], |out| out[0] = value as f32)
}

/// Integers as i32, which is what flex keeps them as unless it was told otherwise.
pub(super) fn integers(tensor: &FlexTensor) -> Cow<'_, [i32]> {
    match tensor.as_slice::<i32>() {
        Some(integers) => Cow::Borrowed(integers),
        None => {
            let data = tensor.clone().into_data();
            Cow::Owned(data.iter::<i32>().collect())
        }
    }
}

/// How long each dimension is.
pub(super) fn dims(tensor: &FlexTensor) -> Vec<usize> {
    tensor.layout().shape().iter().copied().collect()
}

/// How long the last dimension is.
pub(super) fn width(tensor: &FlexTensor) -> usize {
    dims(tensor).last().copied().unwrap_or(1)
}
