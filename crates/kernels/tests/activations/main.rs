//! The activations' values and derivatives against PyTorch's float64 on each backend.

#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, missing_docs)]

mod check;

#[test]
fn flex() {
    check::check::<burn_flex::Flex>(&Default::default());
}

#[test]
fn ndarray() {
    check::check::<burn_ndarray::NdArray>(&Default::default());
}
