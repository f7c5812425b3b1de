//! The binary as a user runs it: arguments in, stdout, stderr and exit code out.

#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, missing_docs)]

mod attention;
mod backends;
mod help;
mod hugging_face;
mod info;
mod memory;
mod model;
mod model_errors;
mod own_tokenizer;
mod prepare;
mod prepare_errors;
mod readme;
mod support;
mod train;
mod train_errors;
