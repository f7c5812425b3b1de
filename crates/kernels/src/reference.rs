//! The operations composed of plain tensor operations: what every override is tested against.

mod activation;
mod adamw;
mod attention;
mod head_loss;
mod linear_attention;
mod norm;
mod rotary;

pub use activation::{activation, activation_backward};
pub use adamw::adamw;
pub use attention::{attention, attention_backward, attention_training, attention_weights};
pub use head_loss::{head_loss, head_loss_gradients, rows_per_block};
pub use linear_attention::{linear_attention, linear_attention_weights};
pub use norm::{normalize, normalize_backward};
pub use rotary::rotary;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorMetadata, TensorPrimitive};

/// The primitive as a typed tensor of `D` dimensions.
fn typed<B: Backend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// The primitive of any shape as a vector, with the way back.
fn flat<B: Backend>(primitive: FloatTensor<B>) -> (Tensor<B, 1>, burn::tensor::Shape) {
    let shape = primitive.shape();
    let count = shape.num_elements();
    let flat = B::float_reshape(primitive, burn::tensor::Shape::new([count]));
    (typed(flat), shape)
}

fn unflat<B: Backend>(tensor: Tensor<B, 1>, shape: burn::tensor::Shape) -> FloatTensor<B> {
    B::float_reshape(primitive(tensor), shape)
}

fn primitive<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}
