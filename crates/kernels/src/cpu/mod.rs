//! CPU kernels on slices of f32, independent of Burn. The `flex` backend is built on them.
//!
//! - [`matrix`] is a strided view. [`product`] multiplies two of them on all threads, in f32 or with the
//!   instructions of [`bf16`].
//! - Special cases of products are [`matvec`] for few rows, [`inner_products`] for a moderate number of rows and
//!   a matrix with contiguous columns, and [`packed`] for packed weights, with the formats `int8`, `float16` and `blocks`.
//!   [`packed_levels`] chooses their levels within fixed scales,
//!   [`gptq`] by the products of a layer's inputs.
//! - [`eigenbasis`] has eigenvectors and orthonormal columns in f64.
//! - [`low_rank`] adds the updates of several adapters to their rows.
//! - [`attention`], [`head_loss`], [`norm`], [`column_norms`], [`rotary`], [`activation`], [`adamw`], [`embedding`], [`rows`] and
//!   [`reduce`] are the operations.
//! - [`vector`] has the shared inner loops, `prefetch` the prefetch hint, and [`parallel`] the distribution over
//!   threads, which in a step are those of a [`team`]. [`instructions`] names those of this CPU.
//!
//! Results are bit-identical for any number of threads: work is divided by shape only, and the results of several
//! tasks are summed in a fixed order.

#![allow(unsafe_code)]

pub mod activation;
pub mod adamw;
#[cfg(target_arch = "x86_64")]
mod amx;
pub mod attention;
pub mod bf16;
pub(crate) mod blocks;
pub mod column_norms;
pub mod delta_rule;
pub mod eigenbasis;
pub mod embedding;
mod few_rows;
mod float16;
pub mod gated_columns;
pub mod gptq;
pub mod head_loss;
pub mod inner_products;
pub mod instructions;
mod int8;
mod integer;
pub mod low_rank;
pub mod matrix;
pub mod matvec;
pub mod norm;
pub mod packed;
pub mod packed_levels;
pub mod parallel;
mod prefetch;
pub mod product;
pub mod reduce;
pub mod rotary;
pub mod rows;
pub mod short_convolution;
pub mod team;
pub mod vector;
