//! Integration tests that run every fuzz target on its seeds and on bounded mutations.
//!
//! A single program, so that the dependencies are linked once.

#![recursion_limit = "256"]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs
)]

mod adapter;
mod datasets;
mod events;
mod inputs;
mod model;
mod serve;
mod tokenizer;
