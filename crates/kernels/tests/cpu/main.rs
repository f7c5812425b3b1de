//! Compares the CPU kernels with plain loops in f64 over random sizes, including odd ones.

#![allow(clippy::unwrap_used, missing_docs)]

mod affine;
mod attention;
mod elementwise;
mod head_loss;
mod numbers;
mod product;
