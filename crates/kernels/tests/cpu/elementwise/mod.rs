//! The operations that go over memory once.

mod activation;
mod norm;
mod simple;
