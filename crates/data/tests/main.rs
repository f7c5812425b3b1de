//! Integration tests: inputs, `prepare`, and operations on whole datasets.
//!
//! One program, so that the dependencies are linked once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs
)]

mod datasets;
mod inputs;
mod prepare;
mod tales;
