//! Products with scalars on the device, and sums of squares.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::{flat, typed, unflat};
use crate::SQUARES_CHUNK;

/// See [`crate::Backend::scaled`].
pub fn scaled<B: Backend>(x: FloatTensor<B>, factor: FloatTensor<B>) -> FloatTensor<B> {
    let (x, shape) = flat::<B>(x);
    unflat(x * typed::<B, 1>(factor), shape)
}

/// See [`crate::Backend::sum_of_squares`].
pub fn sum_of_squares<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    B::float_sum(B::float_mul(x.clone(), x))
}

/// See [`crate::Backend::chunk_sums_of_squares`].
pub fn chunk_sums_of_squares<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let (x, _) = flat::<B>(x);
    let chunks = x.dims()[0].div_ceil(SQUARES_CHUNK);
    let missing = chunks * SQUARES_CHUNK - x.dims()[0];
    let x = match missing {
        0 => x,
        _ => Tensor::cat(vec![x.clone(), Tensor::zeros([missing], &x.device())], 0),
    };
    let x: Tensor<B, 2> = x.reshape([chunks, SQUARES_CHUNK]);
    let sums: Tensor<B, 1> = (x.clone() * x).sum_dim(1).reshape([chunks]);
    sums.into_primitive().tensor()
}
