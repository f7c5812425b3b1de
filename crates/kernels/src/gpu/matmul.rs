//! Matrix products on GPUs, restricted to the CubeK kernels that are correct for the operands.
//!
//! Burn's own product benchmarks about twenty kernels on the device and picks the fastest, but some of them are
//! wrong in 0.21:
//!
//! - Double-buffered kernels, which load one stage of the operands while they multiply another, process an even
//!   number of stages. If the number of whole stages is odd, they read past the end of the operands, in a batch
//!   into the next matrix (cubek#434, burn#5626).
//! - A product that is fused with the operations after it may be launched as a vector-matrix kernel although it
//!   is none (burn#5122).
//! - A choice cached for one shape is reused for shapes that the kernel does not support, which crashes the
//!   device's thread (burn#5352).
//! - On tensor cores, the operands of an f32 product lose 13 of their 23 mantissa bits.
//!
//! The fastest kernel varies between runs, so the same program was correct or wrong at random. This module also
//! picks the fastest kernel, but only among those that are correct for the product, and does not fuse products.
//! Software devices skip the benchmark.

mod choice;
mod few_rows;
mod kernels;
mod key;
#[cfg(all(test, feature = "vulkan"))]
mod tests;

use std::marker::PhantomData;

use burn::tensor::Shape;
use burn_cubecl::fusion::FusionCubeRuntime;
use burn_cubecl::kernel::matmul::init_matmul_output;
use burn_cubecl::{CubeBackend, CubeRuntime};
use burn_fusion::FusionTensor;
use burn_fusion::stream::{Operation, OperationStreams};
use burn_ir::{BackendIr, CustomOpIr, HandleContainer, OperationIr, OperationOutput, TensorIr};

/// See [`crate::Backend::matmul`].
pub fn matmul<R: CubeRuntime>(
    a: FusionTensor<FusionCubeRuntime<R>>,
    b: FusionTensor<FusionCubeRuntime<R>>,
) -> FusionTensor<FusionCubeRuntime<R>> {
    let client = a.client.clone();
    let streams = OperationStreams::with_inputs([&a, &b]);
    let shape = product_shape(&a.shape, &b.shape);
    let output = TensorIr::uninit(client.create_empty_handle(), shape, a.dtype);
    let description = CustomOpIr::new("matmul", &[a.into_ir(), b.into_ir()], &[output]);
    let operation = QueuedMatmul::<R> {
        description: description.clone(),
        runtime: PhantomData,
    };
    client
        .register(streams, OperationIr::Custom(description), operation)
        .output()
}

/// The output shape: the rows of `a`, the columns of `b`, and the larger length of each batch dimension.
fn product_shape(a: &Shape, b: &Shape) -> Shape {
    let last = a.num_dims() - 1;
    let dims = a.iter().zip(b.iter()).enumerate();
    let dims = dims.map(|(dim, (&a, &b))| match last - dim {
        0 => b,
        1 => a,
        _ => a.max(b),
    });
    Shape::from(dims.collect::<Vec<usize>>())
}

/// A product in the queue of operations.
#[derive(Debug)]
struct QueuedMatmul<R> {
    description: CustomOpIr,
    runtime: PhantomData<R>,
}

/// A backend of the runtime; all of them have the same tensor type.
type OnRuntime<R> = CubeBackend<R, f32, i32, u8>;

impl<R: CubeRuntime> Operation<FusionCubeRuntime<R>> for QueuedMatmul<R> {
    fn execute(&self, handles: &mut HandleContainer<<OnRuntime<R> as BackendIr>::Handle>) {
        let ([a, b], [output]) = self.description.as_fixed();
        let [a, b] = [a, b].map(|of| handles.get_float_tensor::<OnRuntime<R>>(of));
        let product = init_matmul_output(&a, &b, a.dtype);
        choice::multiply(a, b, product.clone());
        handles.register_float_tensor::<OnRuntime<R>>(&output.id, product);
    }
}
