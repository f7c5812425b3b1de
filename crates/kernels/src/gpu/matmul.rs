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
//! Software devices skip the benchmark. On CUDA devices, `super::cublas` computes large products.

mod choice;
mod few_rows;
mod kernels;
mod key;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::matmul::init_matmul_output;
use burn_cubecl::tensor::CubeTensor;

use super::meter;
use super::queue::{Queued, queue};

pub use kernels::products_by_every_kernel;

pub(super) use few_rows::{Epilogue, MOST_ROWS, launch_with as launch_few_rows, with_addends};

/// See [`crate::Backend::matmul_to`].
pub fn matmul_to<R: CubeRuntime>(a: Queued<R>, b: Queued<R>, kind: DType) -> Queued<R> {
    let shape = product_shape(&a.shape, &b.shape);
    let [product] = queue("matmul", [a, b], [(shape, kind)], move |[a, b]| {
        [product(a, b, kind)]
    });
    product
}

/// `a b` in the type `kind`, of operands in memory. Sums of 16-bit operands are in f32.
pub(super) fn product<R: CubeRuntime>(
    a: CubeTensor<R>,
    b: CubeTensor<R>,
    kind: DType,
) -> CubeTensor<R> {
    #[cfg(feature = "cuda")]
    if let Some(product) = super::cublas::multiply(&a, &b, kind) {
        return product;
    }
    let product = init_matmul_output(&a, &b, kind);
    meter::record_product(&a, &product);
    choice::multiply(a, b, product.clone());
    product
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
