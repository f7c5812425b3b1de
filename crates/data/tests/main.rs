//! Integration tests: inputs, `prepare`, and operations on whole datasets.
//!
//! A single test binary, so that the dependencies are linked only once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs
)]

mod datasets;
mod inputs;
mod prepare;
#[path = "../../../tests/tables.rs"]
mod tables;
mod tales;
