//! A tensor times a number on the device.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::{flat, typed, unflat};

/// See [`crate::Backend::scaled`].
pub fn scaled<B: Backend>(x: FloatTensor<B>, factor: FloatTensor<B>) -> FloatTensor<B> {
    let (x, shape) = flat::<B>(x);
    unflat(x * typed::<B, 1>(factor), shape)
}
