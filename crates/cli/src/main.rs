//! The binary: parses, dispatches, and tells how it went. Everything else is in the library crates.
//!
//! Map: `args` is the command line and `values` what it may hold, `commands` one file per command, `backend` where a
//! concrete backend is picked, `model_source` what MODEL may be, `built_in_tales` what is trained on where nothing is
//! said, `new_folder` what a command makes, `error` the one place that prints errors, `ending` how the
//! process ends beside a GPU, `console` the one place that writes to stdout and stderr, `output` tables and numbers for
//! it, `signals` what asks the program to stop, `sandbox` the child processes that run untrusted work, `progress` how
//! far a long computation is, `heat_map` the pictures of attention and `head_habits` its numbers, `run_folders` where
//! runs are and `run_history` what a run did, `plot` the pictures of it, `sweep` many runs.

// wgpu's types nest deeper than the compiler's default limit.
#![recursion_limit = "256"]

mod args;
mod backend;
mod built_in_tales;
mod commands;
mod console;
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
mod run_folders;
mod run_history;
mod sandbox;
mod signals;
mod sweep;
mod values;

use std::process::ExitCode;

// Steps allocate and free the same large buffers: glibc's allocator gives them back to the system each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    sandbox::serve_if_worker();
    sandbox::render_templates_apart();
    emberlm_kernels::memory::keep_freed();
    console::start();
    let ran = args::parse().and_then(|parsed| parsed.map_or(Ok(()), commands::run));
    ending::of(match ran {
        Ok(()) => 0,
        Err(error) => error.report(),
    })
}
