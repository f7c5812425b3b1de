//! The command line of emberlm: parses arguments, runs commands, prints results and errors. What the commands do is in the
//! library crates.
//!
//! [`main`] is the program; [`shared`] is what the benchmarks of the workspace need of it.
//!
//! Map: `args` is the command line and `values` what it may hold, `commands` one file per command, `backend` where a
//! concrete backend is picked, `model` opens the MODEL of a command, `built_in_tales` what is trained on where nothing is
//! said, `new_folder` what a command makes, `error` the one place that prints errors, `ending` how the
//! process ends beside a GPU, `memory_guard` refuses what does not fit into memory, `console` the one place that writes to stdout and stderr, `examples` those of each `--help`, `output` tables and numbers for
//! it, `signals` what asks the program to stop, `sandbox` the child processes that run untrusted work, `progress` how
//! far a long computation is, `head_habits` the numbers of attention, `run_folders` where
//! runs are, `run_history` what a run did, `run_settings` its configuration by keys, `run_labels` its tags and note, `plot` the pictures of runs and attention, `sweep` many runs.

// wgpu's types nest deeper than the compiler's default limit.
#![recursion_limit = "256"]

mod args;
mod backend;
mod built_in_tales;
mod commands;
mod console;
mod ending;
mod error;
mod examples;
mod head_habits;
mod memory_guard;
mod model;
mod new_folder;
mod output;
mod plot;
mod progress;
mod run_folders;
mod run_history;
mod run_labels;
mod run_settings;
mod sandbox;
mod signals;
mod sweep;
mod values;

use std::process::ExitCode;

pub mod shared;

/// Runs the command of this process's arguments. The process must call it before it starts a thread, since a worker of the
/// sandbox lowers its own limits here.
pub fn main() -> ExitCode {
    run(args::parse, commands::run)
}

/// Parses the arguments of this process and runs their command. Errors are printed.
fn run<C>(
    parse: impl FnOnce() -> Result<Option<C>, error::CliError>,
    run: impl FnOnce(C) -> Result<(), error::CliError>,
) -> ExitCode {
    sandbox::serve_if_worker();
    sandbox::render_templates_apart();
    emberlm_kernels::memory::keep_freed();
    console::start();
    let ran = parse().and_then(|parsed| parsed.map_or(Ok(()), run));
    ending::of(match ran {
        Ok(()) => 0,
        Err(error) => error.report(),
    })
}
