//! The binary: parses, dispatches, and tells how it went. Everything else is in the library crates.
//!
//! Map: `args` is the command line and `values` what it may hold, `commands` one file per command, `backend` where a
//! concrete backend is picked, `model_source` what MODEL may be, `built_in_tales` what is trained on where nothing is
//! said, `new_folder` what a command makes, `error` the one place that prints errors, `ending` how the
//! process ends beside a GPU, `output` what is written to stdout, `progress` how far a long computation
//! is, `heat_map` the pictures of attention and `head_habits` its numbers, `run_history` what a run did, `plot` the
//! pictures of it, `sweep` many runs.

// wgpu's types nest deeper than the compiler's default limit.
#![recursion_limit = "256"]

mod args;
mod backend;
mod built_in_tales;
mod commands;
mod ending;
mod error;
mod head_habits;
mod heat_map;
mod model_source;
mod new_folder;
mod output;
mod plot;
mod presets;
mod progress;
mod run_config;
mod run_history;
mod sweep;
mod values;

use std::process::ExitCode;

use clap::Parser;

// Steps allocate and free the same large buffers: glibc's allocator gives them back to the system each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    emberlm_kernels::memory::keep_freed();
    ending::of(match commands::run(args::Cli::parse()) {
        Ok(()) => 0,
        Err(error) => error.report(),
    })
}
