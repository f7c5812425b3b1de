//! The operations on slices against plain loops in f64, over random sizes, odd ones among them.

#![allow(clippy::unwrap_used, missing_docs)]

mod attention;
mod elementwise;
mod head_loss;
mod numbers;
mod product;
