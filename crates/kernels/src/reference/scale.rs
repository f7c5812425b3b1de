//! Products with scalars on the device, and sums of squares.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::{flat, typed, unflat};

/// See [`crate::Backend::scaled`].
pub fn scaled<B: Backend>(x: FloatTensor<B>, factor: FloatTensor<B>) -> FloatTensor<B> {
    let (x, shape) = flat::<B>(x);
    unflat(x * typed::<B, 1>(factor), shape)
}

/// See [`crate::Backend::sum_of_squares`].
pub fn sum_of_squares<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    B::float_sum(B::float_mul(x.clone(), x))
}
