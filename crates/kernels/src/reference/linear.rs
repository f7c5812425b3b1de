//! Linear layers and their gradients.

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor, TensorMetadata};

use super::product::{product_of_rounded, rounded};
use super::{last, primitive, rows, typed, with_last};
use crate::{BaseOps, LinearGradients, LinearInputs, Precision};

/// See [`crate::Backend::linear`]. Computes one product over all tokens: a batched product would compute the
/// gradient of the weight once per sequence and sum them.
pub fn linear<B: BaseOps>(inputs: LinearInputs<B>, precision: Precision) -> FloatTensor<B> {
    linear_training(inputs, precision).0
}

/// See [`crate::Backend::linear_training`]: returns the rounded operands.
pub fn linear_training<B: BaseOps>(
    inputs: LinearInputs<B>,
    precision: Precision,
) -> (FloatTensor<B>, [FloatTensor<B>; 2]) {
    let wide = inputs.x.dtype();
    let kept = [inputs.x, inputs.weight].map(|x| match precision {
        Precision::F32 => x,
        narrow => B::float_cast(x, narrow.kind().into()),
    });
    let [x, weight] = kept.clone();
    let (x, shape) = rows::<B>(x); // [tokens, in]
    let weight = typed::<B, 2>(weight); // [in, out]
    let shape = with_last(shape, weight.dims()[1]);
    let mut y = product_of_rounded(x, weight, wide); // [tokens, out]
    if let Some(bias) = inputs.bias {
        y = y + typed::<B, 1>(bias).unsqueeze::<2>();
    }
    if let Some(residual) = inputs.residual {
        y = rows::<B>(residual).0 + y;
    }
    (B::float_reshape(primitive(y), shape), kept)
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
    let wide = grad.dtype();
    let bias = bias.then(|| primitive(summed(rows::<B>(grad.clone()).0)));
    let wanted = [input, weights];
    let products = gradient_products::<B>(x, weight, grad, added, wanted, precision, wide);
    LinearGradients { bias, ..products }
}

/// The gradients of a linear layer's input and weight, in the type `wide`. All factors may be rounded already.
pub fn gradient_products<B: BaseOps>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    grad: FloatTensor<B>,
    added: Option<FloatTensor<B>>,
    [input, weights]: [bool; 2],
    precision: Precision,
    wide: DType,
) -> LinearGradients<B> {
    let (x, shape) = rows::<B>(x); // [tokens, in]
    let (grad, _) = rows::<B>(grad); // [tokens, out]
    let weight = typed::<B, 2>(weight); // [in, out]
    let factor = rounded(grad, precision);
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
        bias: None,
    }
}

/// `Σ x` over the rows, `[tokens, width]` to `[width]`.
pub(super) fn summed<B: BurnBackend>(x: Tensor<B, 2>) -> Tensor<B, 1> {
    let width = last(&x.shape());
    x.sum_dim(0).reshape([width])
}
