//! The command-line program: parses arguments, runs commands, and prints results and errors. The commands are
//! thin wrappers of the library crates.
//!
//! [`main`] is the program. [`shared`] exports the parts that the workspace's benchmarks use.
//!
//! | module | contents |
//! |---|---|
//! | `args`, `values`, `examples` | parsing of command lines, value parsers, `--help` examples |
//! | `arg_forms` | forms of values that every option accepts |
//! | `foreign` | hints for words of other programs |
//! | `commands` | the command line; one file or folder per command |
//! | `backend` | backend and device selection |
//! | `model`, `built_in_tales` | opening a command's MODEL; the default dataset |
//! | `hub` | MODEL arguments that are names on the Hugging Face Hub |
//! | `new_folder` | folders that commands create |
//! | `memory_guard` | memory check before large allocations |
//! | `console`, `shell` | stdout and stderr; words of suggested commands |
//! | `error`, `output`, `progress` | error reporting; results, tables and numbers; progress bars |
//! | `signals`, `ending` | stop signals; process exit while a GPU computes |
//! | `ranks` | this process among those of a training job |
//! | `sandbox` | child processes for untrusted work |
//! | `run_folders`, `run_history`, `run_settings`, `run_labels` | finding runs; their events, settings and
//! tags |
//! | `run_sessions`, `run_model` | command lines and machines of runs; the size of their models |
//! | `csv` | comma-separated values |
//! | `head_habits`, `plot` | attention statistics; plots of runs and attention |

// wgpu's types nest deeper than the default limit.
#![recursion_limit = "256"]

mod adapter_arg;
mod arg_forms;
mod args;
mod backend;
mod built_in_tales;
mod cache_arg;
mod commands;
mod console;
mod csv;
mod draft_model;
mod ending;
mod error;
mod examples;
mod foreign;
mod head_habits;
mod hub;
mod memory_guard;
mod model;
mod new_file;
mod new_folder;
mod opened_model;
#[cfg(test)]
mod option_names;
mod output;
mod plot;
mod progress;
mod ranks;
mod run_folders;
mod run_history;
mod run_labels;
mod run_model;
mod run_sessions;
mod run_settings;
mod sandbox;
mod shell;
mod signals;
mod text_arg;
mod values;
mod weights_arg;

use std::process::ExitCode;

use emberlm_kernels::memory;

pub mod shared;

/// Runs the command given by this process's arguments. Call it before starting any thread: a sandbox worker
/// lowers its own resource limits here.
pub fn main() -> ExitCode {
    run(args::parse, commands::run)
}

/// Parses this process's arguments, runs their command and prints its error.
fn run<C>(
    parse: impl FnOnce() -> Result<Option<C>, error::CliError>,
    run: impl FnOnce(C) -> Result<(), error::CliError>,
) -> ExitCode {
    sandbox::serve_if_worker();
    sandbox::render_templates_apart();
    memory::return_freed();
    memory::small_pages();
    console::start();
    let ran = parse().and_then(|parsed| parsed.map_or(Ok(()), run));
    ending::of(match ran {
        Ok(()) => 0,
        Err(error) => error.report(),
    })
}
