//! Linear layers and their gradients.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;

use super::product::{product, product_of_rounded, rounded};
use super::{last, primitive, rows, typed, with_last};
use crate::{BaseOps, LinearGradients, LinearInputs, Precision};

/// See [`crate::Backend::linear`]. Computes one product over all tokens: a batched product would compute the
/// gradient of the weight once per sequence and sum them.
pub fn linear<B: BaseOps>(inputs: LinearInputs<B>, precision: Precision) -> FloatTensor<B> {
    let (x, shape) = rows::<B>(inputs.x); // [tokens, in]
    let weight = typed::<B, 2>(inputs.weight); // [in, out]
    let shape = with_last(shape, weight.dims()[1]);
    let mut y = product(x, weight, precision); // [tokens, out]
    if let Some(bias) = inputs.bias {
        y = y + typed::<B, 1>(bias).unsqueeze::<2>();
    }
    if let Some(residual) = inputs.residual {
        y = rows::<B>(residual).0 + y;
    }
    B::float_reshape(primitive(y), shape)
}

/// See [`crate::Backend::linear_backward`]. In f16 the loss scale determines the magnitude of the gradients; this
/// function does not scale them further.
pub fn linear_backward<B: BaseOps>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    grad: FloatTensor<B>,
    added: Option<FloatTensor<B>>,
    [input, weights, bias]: [bool; 3],
    precision: Precision,
) -> LinearGradients<B> {
    let (x, shape) = rows::<B>(x); // [tokens, in]
    let (grad, _) = rows::<B>(grad); // [tokens, out]
    let weight = typed::<B, 2>(weight); // [in, out]
    // The gradient may be rounded already.
    let wide = x.dtype();
    let factor = rounded(grad.clone(), precision);
    let x_grad = input.then(|| {
        let weight = rounded(weight, precision).transpose();
        let input_grad = product_of_rounded(factor.clone(), weight, wide); // [tokens, in]
        let input_grad = match added {
            Some(added) => rows::<B>(added).0 + input_grad,
            None => input_grad,
        };
        B::float_reshape(primitive(input_grad), shape)
    });
    LinearGradients {
        x: x_grad,
        weight: weights.then(|| {
            let x = rounded(x, precision).transpose();
            primitive(product_of_rounded(x, factor, wide))
        }),
        bias: bias.then(|| primitive(summed(grad))),
    }
}

/// `Σ x` over the rows, `[tokens, width]` to `[width]`.
pub(super) fn summed<B: BurnBackend>(x: Tensor<B, 2>) -> Tensor<B, 1> {
    let width = last(&x.shape());
    x.sum_dim(0).reshape([width])
}
