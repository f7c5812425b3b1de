//! Packed weights. They have no gradient, so packing and unpacking delegate to the inner backend. A product keeps the
//! packed weight for its backward pass and unpacks it again, so that a frozen model is never held in f32.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::module::AutodiffModule;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Device, Shape, Tensor, TensorMetadata, TensorPrimitive};

use crate::cpu::packed::PackedMatrix;
use crate::{Backend, LinearInputs, PackedFormat, PackedWeight, Precision};

pub(super) fn pack<B: Backend, C: CheckpointStrategy>(
    weight: FloatTensor<Autodiff<B, C>>,
    format: PackedFormat,
) -> PackedWeight<Autodiff<B, C>> {
    PackedWeight::from_inner(B::pack(weight.primitive, format))
}

pub(super) fn packed_from_host<B: Backend, C: CheckpointStrategy>(
    matrix: PackedMatrix,
    device: &Device<B>,
) -> PackedWeight<Autodiff<B, C>> {
    PackedWeight::from_inner(B::packed_from_host(matrix, device))
}

pub(super) fn unpack<B: Backend, C: CheckpointStrategy>(
    weight: &PackedWeight<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    without_gradient::<B, C, 2>(B::unpack(weight.valid()))
}

/// Looks up the rows without unpacking the others.
pub(super) fn embedding_packed<B: Backend, C: CheckpointStrategy>(
    table: &PackedWeight<Autodiff<B, C>>,
    ids: IntTensor<B>,
) -> FloatTensor<Autodiff<B, C>> {
    without_gradient::<B, C, 3>(B::embedding_packed(table.valid(), ids))
}

fn without_gradient<B: Backend, C: CheckpointStrategy, const D: usize>(
    floats: FloatTensor<B>,
) -> FloatTensor<Autodiff<B, C>> {
    let floats = Tensor::<B, D>::from_primitive(TensorPrimitive::Float(floats));
    Tensor::<Autodiff<B, C>, D>::from_inner(floats)
        .into_primitive()
        .tensor()
}

#[derive(Debug)]
struct LinearPackedBackward;

/// The parents are the input, and the bias and the residual if present.
impl<B: Backend, const N: usize> Backward<B, N> for LinearPackedBackward {
    /// The weight, `[out, in]`, true if there is a bias, and the precision of the product.
    type State = (PackedWeight<B>, bool, Precision);

    fn backward(
        self,
        ops: Ops<Self::State, N>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let grad = grads.consume::<B>(&ops.node);
        let (weight, has_bias, precision) = ops.state;
        let mut parents = ops.parents.into_iter();
        let mut next = || parents.next().flatten();
        let x = next();
        let bias = has_bias.then(&mut next).flatten();
        if let Some(node) = x {
            let inputs = LinearInputs {
                x: grad.clone(),
                weight: B::unpack(weight),
                bias: None,
                residual: None,
            };
            grads.register::<B>(node.id, <B as Backend>::linear(inputs, precision));
        }
        if let Some(node) = bias {
            grads.register::<B>(node.id, summed_rows::<B>(grad.clone()));
        }
        if let Some(node) = next() {
            grads.register::<B>(node.id, grad);
        }
    }
}

/// The sum over all dimensions except the last.
fn summed_rows<B: Backend>(grad: FloatTensor<B>) -> FloatTensor<B> {
    let shape = grad.shape();
    let width = shape.iter().next_back().copied().unwrap_or(1);
    let rows = shape.num_elements() / width.max(1);
    let rows = B::float_reshape(grad, Shape::new([rows, width]));
    B::float_reshape(B::float_sum_dim(rows, 0), Shape::new([width]))
}

/// `residual + x Wᵀ + b` with W in f32: in training, inputs are rounded to `precision` and not to 8 bits.
pub(super) fn linear_packed<B: Backend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    weight: PackedWeight<Autodiff<B, C>>,
    bias: Option<FloatTensor<Autodiff<B, C>>>,
    residual: Option<FloatTensor<Autodiff<B, C>>>,
    precision: Precision,
) -> FloatTensor<Autodiff<B, C>> {
    let weight = weight.valid();
    let node = |of: &Option<FloatTensor<Autodiff<B, C>>>| of.as_ref().map(|of| of.node.clone());
    let (bias_node, residual_node) = (node(&bias), node(&residual));
    let kept = (weight.clone(), bias.is_some(), precision);
    let inputs = LinearInputs::<B> {
        x: x.primitive,
        weight: B::float_swap_dims(B::unpack(weight), 0, 1), // [in, out]
        bias: bias.map(|bias| bias.primitive),
        residual: residual.map(|residual| residual.primitive),
    };
    let output = <B as Backend>::linear(inputs, precision);
    match (bias_node, residual_node) {
        (Some(bias), Some(residual)) => with_parents!(
            LinearPackedBackward,
            C,
            [x.node, bias, residual],
            kept,
            output
        ),
        (Some(one), None) | (None, Some(one)) => {
            with_parents!(LinearPackedBackward, C, [x.node, one], kept, output)
        }
        (None, None) => with_parents!(LinearPackedBackward, C, [x.node], kept, output),
    }
}
