//! Integration tests: samplers, constraints, plain and speculative generation, and the engine.
//!
//! A single binary, so dependencies are linked once.

#![recursion_limit = "256"]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs
)]

mod beam;
mod chooser;
mod constraint;
mod defaults;
mod engine;
mod json_schemas;
mod logprobs;
mod plain;
mod sampler;
mod speculative;
mod support;
#[path = "../../../tests/tables.rs"]
mod tables;
mod vetting;
