//! Development target.
#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs)]
mod beam;
