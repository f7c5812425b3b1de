//! Integration tests: host names and tool calls over HTTP.
//!
//! A single binary, so dependencies are linked once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs
)]

mod hosts;
mod tools;
