//! The decoder at every preset's parts and at a spread of every other legal configuration: cached decoding, attention weights,
//! packed weights, passes over several sequences, isolated documents, recomputation, and token tables in parts.

mod attention_weights;
mod decoding;
mod documents;
pub mod gradients;
mod int8;
mod packed_rows;
mod ragged;
mod recompute;
mod spread;
mod table_parts;
mod values;
