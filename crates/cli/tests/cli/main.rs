//! The binary as a user runs it: arguments in, stdout, stderr and exit code out.

#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, missing_docs)]

mod anywhere;
mod attention;
mod backends;
mod chat;
#[cfg(unix)]
mod chat_terminal;
mod choosing;
mod crash;
#[cfg(unix)]
mod dashboard;
mod data;
mod draft;
mod eval_split;
mod eval_tasks;
mod feeding;
mod help;
mod hugging_face;
mod info;
mod int8;
mod memory;
mod model;
mod model_errors;
mod optimizers;
mod own_tokenizer;
mod precision;
mod prepare;
mod prepare_errors;
mod readme;
mod resume;
mod seeing;
mod serve;
mod serve_refusals;
mod support;
mod sweep;
mod tokenizer;
mod train;
mod train_errors;
mod watch;
