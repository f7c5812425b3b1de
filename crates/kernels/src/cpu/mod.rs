//! The operations on slices of f32 in memory, without Burn: what the `flex` backend's overrides are made of.
//!
//! Map: [`matrix`] is a strided view, [`product`] multiplies two of them on all threads, in f32 or through [`bf16`]'s
//! instructions; [`matvec`] does where one has few rows, [`inner_products`] where it has some and the other's
//! columns are contiguous, and [`packed`] where it is a packed weight, with `int8` as its format. [`attention`], [`head_loss`], [`norm`], [`rotary`], [`activation`], [`adamw`], [`embedding`], [`rows`] and [`reduce`]
//! are the operations; [`vector`] holds what their inner loops share, `prefetch` asks for memory early, and [`parallel`] how they are spread over threads.
//!
//! Every result is the same to the bit whatever the number of threads: work is cut only by shape, and what several
//! tasks add up is added in a fixed order.

#![allow(unsafe_code)]

pub mod activation;
pub mod adamw;
pub mod attention;
pub mod bf16;
pub mod embedding;
pub mod head_loss;
pub mod inner_products;
mod int8;
pub mod matrix;
pub mod matvec;
pub mod norm;
pub mod packed;
pub mod parallel;
mod prefetch;
pub mod product;
pub mod reduce;
pub mod rotary;
pub mod rows;
pub mod vector;
