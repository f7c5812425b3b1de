//! Integration tests: the engine of encoders, classifiers, host names, and tool calls over HTTP.
//!
//! A single binary, so dependencies are linked once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs
)]

mod classifiers;
mod embedding_engine;
mod hosts;
#[path = "../../../tests/tables.rs"]
mod tables;
mod tools;
