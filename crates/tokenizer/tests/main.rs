//! Integration tests: tokenizers, chat templates and training against the reference libraries.
//!
//! A single program, so that the dependencies are linked once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs
)]

mod chat;
mod chat_encoded_twice;
mod chat_files;
mod chat_refusals;
mod export;
mod files;
mod gguf;
mod gguf_export;
mod golden;
mod sentence_piece;
mod stop_strings;
#[path = "../../../tests/tables.rs"]
mod tables;
mod tokenizer;
mod train;
