//! Rotary position embeddings.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::{primitive, typed};
use crate::RotaryLayout;

/// See [`crate::Backend::rotary`].
pub fn rotary<B: Backend>(
    layout: RotaryLayout,
    x: FloatTensor<B>,
    cos: FloatTensor<B>,
    sin: FloatTensor<B>,
) -> FloatTensor<B> {
    let x = typed::<B, 4>(x); // [batch, heads, seq, head_dim]
    let cos = typed::<B, 2>(cos); // [seq, pairs]
    let sin = typed::<B, 2>(sin);
    let head_dim = x.dims()[3];
    let rotated_dims = 2 * cos.dims()[1];
    if rotated_dims == head_dim {
        return primitive(rotate(layout, x, cos, sin));
    }
    let passed = x.clone().narrow(3, rotated_dims, head_dim - rotated_dims);
    let rotated = rotate(layout, x.narrow(3, 0, rotated_dims), cos, sin);
    primitive(Tensor::cat(vec![rotated, passed], 3))
}

fn rotate<B: Backend>(
    layout: RotaryLayout,
    x: Tensor<B, 4>,
    cos: Tensor<B, 2>,
    sin: Tensor<B, 2>,
) -> Tensor<B, 4> {
    let [batch, heads, seq, dims] = x.dims();
    let pairs = dims / 2;
    match layout {
        RotaryLayout::HalfSplit => {
            let (cos, sin) = (cos.unsqueeze::<4>(), sin.unsqueeze::<4>()); // [1, 1, seq, pairs]
            let a = x.clone().narrow(3, 0, pairs);
            let b = x.narrow(3, pairs, pairs);
            let (a, b) = rotate_pair(a, b, cos, sin);
            Tensor::cat(vec![a, b], 3)
        }
        RotaryLayout::Interleaved => {
            let cos = cos.reshape([1, 1, seq, pairs, 1]);
            let sin = sin.reshape([1, 1, seq, pairs, 1]);
            let x = x.reshape([batch, heads, seq, pairs, 2]);
            let a = x.clone().narrow(4, 0, 1);
            let b = x.narrow(4, 1, 1);
            let (a, b) = rotate_pair(a, b, cos, sin);
            Tensor::cat(vec![a, b], 4).reshape([batch, heads, seq, dims])
        }
    }
}

/// Returns `(a cos - b sin, b cos + a sin)`.
fn rotate_pair<B: Backend, const D: usize>(
    a: Tensor<B, D>,
    b: Tensor<B, D>,
    cos: Tensor<B, D>,
    sin: Tensor<B, D>,
) -> (Tensor<B, D>, Tensor<B, D>) {
    (
        a.clone() * cos.clone() - b.clone() * sin.clone(),
        b * cos + a * sin,
    )
}
