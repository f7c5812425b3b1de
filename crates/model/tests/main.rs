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
#[path = "../../../tests/tables.rs"]
mod tables;
mod weights;

/// Sets fields of a JSON object as a row of a table lists them: `{"a.b": 1}` sets the field `b` of `a`.
fn set_fields(fields: &mut serde_json::Value, changes: &str) {
    let changes: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(changes).unwrap();
    for (path, value) in changes {
        let names = path.split('.');
        *names.fold(&mut *fields, |place, name| &mut place[name]) = value;
    }
}
