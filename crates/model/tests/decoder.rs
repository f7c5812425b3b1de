//! Tests the decoder with the components of every preset and with a representative sample of other valid
//! configurations: cached decoding, attention weights, packed weights, ragged passes, isolated documents,
//! recomputation, and split token tables.

mod attention_weights;
mod cache_formats;
mod decoding;
mod documents;
pub mod gradients;
mod int8;
mod packed_rows;
mod ragged;
mod recompute;
mod spread;
mod streamed;
mod table_parts;
mod values;
