//! Integration tests: hooks, objectives, optimizers and TensorBoard event files.
//!
//! A single binary, so dependencies are linked once.

#![recursion_limit = "256"]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs
)]

#[cfg(feature = "vulkan")]
mod behind;
mod common;
mod hooks;
mod objectives;
mod optimizer;
mod parametrization;
mod partial_training;
mod tensorboard;
