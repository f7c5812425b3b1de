//! Runs the binary like a user, with arguments, and checks stdout, stderr and exit code.

#![allow(clippy::print_stdout, clippy::print_stderr)]
#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, missing_docs)]

mod activations;
mod adapters;
#[cfg(any(feature = "ndarray", feature = "vulkan"))]
mod anywhere;
mod attention;
mod backends;
mod bench;
#[cfg(target_os = "linux")]
mod bounded_memory;
#[cfg(target_os = "linux")]
mod broken_output;
mod cache_formats;
mod chat;
mod chat_reasoning;
#[cfg(unix)]
mod chat_terminal;
#[cfg(unix)]
mod control_characters;
mod crash;
mod damaged_data;
#[cfg(unix)]
mod dashboard;
mod data;
mod doctor_full;
mod draft;
#[cfg(target_os = "linux")]
mod duration;
mod early_stop;
mod encoder;
mod encoder_decoder;
mod eval_forms;
mod eval_split;
mod eval_task_files;
mod eval_task_groups;
mod eval_tasks;
mod eval_text;
mod fine_tuning;
mod fitting_defaults;
mod fork;
#[cfg(target_os = "linux")]
mod full_disk;
mod generation_config;
mod gguf;
mod help;
#[cfg(target_os = "linux")]
mod hostile_grammars;
#[cfg(target_os = "linux")]
mod hostile_templates;
#[cfg(target_os = "linux")]
mod hostile_tokenizers;
mod hub;
mod hugging_face;
mod info;
mod info_kinds;
mod installing;
mod int8;
mod lens;
mod lr_find;
mod memory;
#[cfg(target_os = "linux")]
mod memory_guard;
#[cfg(target_os = "linux")]
mod messages;
mod mistakes;
mod model;
mod model_errors;
mod model_kinds;
mod names;
mod norms;
mod num_samples;
mod objectives;
mod one_conversation;
mod optimizers;
mod overfit_batch;
mod own_tokenizer;
mod patch;
mod plot_groups;
mod plot_points;
mod plots_and_runs;
mod precision;
mod prepare;
mod prepare_errors;
mod readme;
mod reference;
mod report;
mod resume;
mod run_details;
#[cfg(unix)]
mod run_folder;
mod sampling_settings;
mod scale;
mod serve;
#[cfg(target_os = "linux")]
mod serve_adapters;
mod serve_admin;
mod serve_attacks;
mod serve_config;
mod serve_drafts;
mod serve_encoder_decoders;
mod serve_encoders;
mod serve_fields;
mod serve_hosts;
mod serve_log;
mod serve_models;
#[cfg(unix)]
mod serve_prompt_cache;
mod serve_refusals;
mod serve_responses;
mod serve_tools;
#[cfg(unix)]
mod signals;
mod speed;
mod support;
mod sweep;
#[cfg(unix)]
mod symbolic_links;
mod token_selection;
mod tokenizer;
mod train;
mod train_errors;
mod train_tasks;
mod training_data;
mod watch;
