//! Tests operations that make a single pass over memory.

mod activation;
mod norm;
mod simple;
