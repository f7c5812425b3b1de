//! Conversions between flex's tensors and slices.

#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ops::Range;

use burn::tensor::{Bytes, DType, Shape};
use burn_flex::{FlexTensor, Layout};

/// Returns true if all are f32.
pub(super) fn is_f32(tensors: &[&FlexTensor]) -> bool {
    tensors.iter().all(|tensor| tensor.dtype() == DType::F32)
}

/// Returns a tensor with contiguous elements. A view of contiguous elements is not copied.
pub(super) fn dense(tensor: FlexTensor) -> FlexTensor {
    match tensor.is_contiguous() {
        true => tensor,
        false => tensor.to_contiguous(),
    }
}

/// The elements of a dense tensor.
pub(super) fn elements(tensor: &FlexTensor) -> &[f32] {
    &tensor.storage()[element_range(tensor)]
}

/// The range of a dense tensor in its storage.
pub(super) fn element_range(tensor: &FlexTensor) -> Range<usize> {
    let start = tensor.layout().start_offset();
    start..start + tensor.layout().num_elements()
}

/// The elements of a dense tensor for writing. Copies shared memory first.
pub(super) fn elements_mut(tensor: &mut FlexTensor) -> &mut [f32] {
    let element_range = element_range(tensor);
    &mut tensor.storage_mut()[element_range]
}

/// Allocates a tensor for `fill`, which must write every element before reading it.
pub(super) fn filled(shape: impl Into<Shape>, fill: impl FnOnce(&mut [f32])) -> FlexTensor {
    let [tensor] = all_filled([shape.into()], |[out]| fill(out));
    tensor
}

/// See [`crate::Backend::zeros`]. flex's zeros are copied once, to align them.
pub(super) fn zeros(shape: Shape) -> FlexTensor {
    let elements = Bytes::from_elems(vec![0f32; shape.num_elements()]);
    FlexTensor::new(elements, Layout::contiguous(shape), DType::F32)
}

/// Allocates tensors for `fill`, which must write every element before reading it.
pub(super) fn all_filled<const N: usize>(
    shapes: [Shape; N],
    fill: impl FnOnce([&mut [f32]; N]),
) -> [FlexTensor; N] {
    let mut memory = shapes.map(|shape| (Vec::<f32>::with_capacity(shape.num_elements()), shape));
    fill(memory.each_mut().map(|(elements, shape)| {
        // SAFETY: the vector owns the memory and it is large enough. The content is uninitialized, but every bit
        // pattern is a valid f32, and `fill` writes each element before it is read. Zeroing first would cost a
        // pass over memory per operation.
        unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr(), shape.num_elements()) }
    }));
    memory.map(|(mut elements, shape)| {
        // SAFETY: the capacity suffices, and `fill` has written all elements.
        unsafe { elements.set_len(shape.num_elements()) };
        of_elements(elements, shape)
    })
}

/// A dense tensor of these elements.
pub(super) fn of_elements(elements: Vec<f32>, shape: Shape) -> FlexTensor {
    FlexTensor::new(
        Bytes::from_elems(elements),
        Layout::contiguous(shape),
        DType::F32,
    )
}

/// A scalar as a tensor `[1]`.
pub(super) fn number(value: f64) -> FlexTensor {
    filled([1], |out| out[0] = value as f32)
}

/// The elements as i32, flex's default integer type.
pub(super) fn integers(tensor: &FlexTensor) -> Cow<'_, [i32]> {
    match tensor.as_slice::<i32>() {
        Some(integers) => Cow::Borrowed(integers),
        None => {
            let data = tensor.clone().into_data();
            Cow::Owned(data.iter::<i32>().collect())
        }
    }
}

/// The length of each dimension.
pub(super) fn dims(tensor: &FlexTensor) -> Vec<usize> {
    tensor.layout().shape().iter().copied().collect()
}

/// The length of the last dimension.
pub(super) fn width(tensor: &FlexTensor) -> usize {
    dims(tensor).last().copied().unwrap_or(1)
}
