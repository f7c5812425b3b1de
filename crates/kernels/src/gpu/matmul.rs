//! Matrix products on GPUs, by those of CubeK's kernels that are right.
//!
//! Burn's own product chooses the quickest of some twenty kernels by trying them on the device, and in 0.21 some are wrong:
//!
//! - Those that load the next stage of the factors while they multiply one make an even number of stages. With an odd number
//!   of whole ones they read past the factors' end, in a batch the next matrix (cubek#434, burn#5626).
//! - A product that is fused with what follows may become a kernel for rows times matrices where it is none (burn#5122).
//! - A choice made for one shape is taken for others that it cannot do, and the device's thread dies of it (burn#5352).
//! - On tensor cores the factors of a product in f32 lose 13 of their 23 bits.
//!
//! Which kernel is the quickest differs from run to run, so the same program was right or wrong at random. Here the quickest
//! is chosen too, among kernels that are right for the product, and no product is fused. On software devices nothing is
//! benchmarked.

mod choice;
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
    let shape = of_product(&a.shape, &b.shape);
    let output = TensorIr::uninit(client.create_empty_handle(), shape, a.dtype);
    let description = CustomOpIr::new("matmul", &[a.into_ir(), b.into_ir()], &[output]);
    let queued = Queued::<R> {
        description: description.clone(),
        runtime: PhantomData,
    };
    client
        .register(streams, OperationIr::Custom(description), queued)
        .output()
}

/// The rows of the first, the columns of the second, and before them the larger of each two dimensions.
fn of_product(a: &Shape, b: &Shape) -> Shape {
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
struct Queued<R> {
    description: CustomOpIr,
    runtime: PhantomData<R>,
}

/// Any of the runtime's backends: their tensors are the same.
type OnRuntime<R> = CubeBackend<R, f32, i32, u8>;

impl<R: CubeRuntime> Operation<FusionCubeRuntime<R>> for Queued<R> {
    fn execute(&self, handles: &mut HandleContainer<<OnRuntime<R> as BackendIr>::Handle>) {
        let ([a, b], [output]) = self.description.as_fixed();
        let [a, b] = [a, b].map(|of| handles.get_float_tensor::<OnRuntime<R>>(of));
        let made = init_matmul_output(&a, &b, a.dtype);
        choice::multiply(a, b, made.clone());
        handles.register_float_tensor::<OnRuntime<R>>(&output.id, made);
    }
}
