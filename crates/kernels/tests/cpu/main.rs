//! Compares the CPU kernels with plain loops in f64 over random sizes, including odd ones, and the block formats with
//! ggml.

#![allow(clippy::unwrap_used, missing_docs)]

mod affine;
mod attention;
mod blocks;
mod elementwise;
mod head_loss;
mod low_rank;
mod numbers;
mod product;
