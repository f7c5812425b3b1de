//! The binary as a user runs it: arguments in, stdout, stderr and exit code out.

#![allow(clippy::print_stdout, clippy::print_stderr)]
#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, missing_docs)]

mod anywhere;
mod attention;
mod backends;
#[cfg(target_os = "linux")]
mod bounded_memory;
mod chat;
#[cfg(unix)]
mod chat_terminal;
mod choosing;
#[cfg(unix)]
mod control_characters;
mod crash;
mod damaged_data;
#[cfg(unix)]
mod dashboard;
mod data;
mod doctor_full;
mod draft;
#[cfg(unix)]
mod duration;
mod encoder_decoder;
mod eval_split;
mod eval_tasks;
mod feeding;
mod fine_tuning;
mod fitting_defaults;
#[cfg(target_os = "linux")]
mod full_disk;
mod generation_config;
mod help;
#[cfg(target_os = "linux")]
mod hostile_grammars;
#[cfg(target_os = "linux")]
mod hostile_templates;
#[cfg(target_os = "linux")]
mod hostile_tokenizers;
mod hugging_face;
mod info;
mod installing;
mod int8;
mod memory;
#[cfg(target_os = "linux")]
mod memory_guard;
#[cfg(target_os = "linux")]
mod messages;
mod mistakes;
mod model;
mod model_errors;
mod names;
#[cfg(target_os = "linux")]
mod nobody_reads;
mod optimizers;
mod own_tokenizer;
mod precision;
mod prepare;
mod prepare_errors;
mod readme;
mod reference;
mod resume;
#[cfg(unix)]
mod run_folder;
mod seeing;
mod serve;
#[cfg(target_os = "linux")]
mod serve_attacks;
mod serve_hosts;
mod serve_log;
mod serve_models;
mod serve_refusals;
mod serve_responses;
mod serve_tools;
#[cfg(unix)]
mod signals;
mod speed;
mod support;
mod sweep;
mod tokenizer;
mod train;
mod train_errors;
mod watch;
