//! Measures training, generation, kernels, loading and preparing, for `cargo xtask bench`. Users do not get this program.
//!
//! | command | file | measures |
//! |---|---|---|
//! | `train` | `train` | training steps on random tokens |
//! | `generate` | `generate` | a prompt, and the tokens after it |
//! | `kernels` | `kernels` | each operation next to its reference implementation |
//! | `load` | `load` | time and memory of reading a model |
//! | `loader` | `loader` | batches per second |
//! | `prepare` | `prepare` | preparing a corpus, beside tiktoken-rs |
//!
//! Each command is also known by the name that it had in the binary `emberlm`: `bench-train` and so on.

// wgpu's types nest deeper than the compiler's default limit.
#![recursion_limit = "256"]

mod generate;
mod kernels;
mod load;
mod loader;
mod prepare;
mod train;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use emberlm_cli::shared;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure what `cargo xtask bench` reports
#[derive(Debug, Parser)]
#[command(name = "emberlm-bench", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure training speed
    #[command(alias = "bench-train")]
    Train(train::TrainArgs),
    /// Measure the speed of generation
    #[command(alias = "bench-generate")]
    Generate(generate::GenerateArgs),
    /// Measure each operation next to its reference implementation
    #[command(alias = "bench-kernels")]
    Kernels(kernels::KernelsArgs),
    /// Measure the time and memory of reading a model
    #[command(alias = "bench-load")]
    Load(load::LoadArgs),
    /// Measure the speed and memory of preparing
    #[command(alias = "bench-prepare")]
    Prepare(prepare::PrepareArgs),
    /// Measure how fast batches come
    #[command(alias = "bench-loader")]
    Loader(loader::LoaderArgs),
}

fn main() -> ExitCode {
    shared::main(|cli: Cli| match cli.command {
        Command::Train(args) => train::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Kernels(args) => kernels::run(args),
        Command::Load(args) => load::run(args),
        Command::Prepare(args) => prepare::run(args),
        Command::Loader(args) => loader::run(args),
    })
}
