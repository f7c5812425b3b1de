//! Integration tests: components, decoders, weights on disk, and parity with PyTorch and `transformers`.
//!
//! All of them are in one test binary, so that dependencies are linked only once.

#![recursion_limit = "256"]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs
)]

mod adapter_files;
mod attentions;
mod components;
mod decoder;
mod encoder;
mod encoder_decoder;
mod gguf;
mod gguf_export;
mod gptq;
mod hugging_face;
mod initialisation;
mod parameters;
mod parity;
mod weights;
