//! The measuring program of `cargo xtask bench`, which is not part of releases.
//!
//! | command | file | measures |
//! |---|---|---|
//! | `train` | `train` | training steps on random tokens |
//! | `exchange` | `exchange` | sums of gradients over ranks |
//! | `generate` | `generate` | reading a prompt, and generating tokens |
//! | `kernels` | `kernels` | each operation compared with its reference implementation |
//! | `embed` | `embed` | texts per second of an encoder |
//! | `load` | `load` | time and memory of loading a model |
//! | `loader` | `loader` | batches per second |
//! | `prepare` | `prepare` | preparing a corpus, compared with tiktoken-rs |
//! | `machine` | `machine` | the limits of this CPU: memory bandwidth and matrix products |
//!
//! Each command also has the alias `bench-train` and so on, which is its former name in the binary `emberlm`.

// wgpu's types are nested more deeply than the compiler's default limit.
#![recursion_limit = "256"]

mod embed;
mod exchange;
mod generate;
mod kernels;
mod link;
mod load;
mod loader;
mod machine;
mod prepare;
mod train;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use emberlm_cli::shared;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The measurements of `cargo xtask bench`
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
    /// Measure the time in which ranks sum gradients
    Exchange(exchange::ExchangeArgs),
    /// Measure the speed of generation
    #[command(alias = "bench-generate")]
    Generate(generate::GenerateArgs),
    /// Measure the speed of embedding texts
    Embed(embed::EmbedArgs),
    /// Measure each operation compared with its reference implementation
    #[command(alias = "bench-kernels")]
    Kernels(kernels::KernelsArgs),
    /// Measure the time and memory of loading a model
    #[command(alias = "bench-load")]
    Load(load::LoadArgs),
    /// Measure the speed and memory of preparing a corpus
    #[command(alias = "bench-prepare")]
    Prepare(prepare::PrepareArgs),
    /// Measure the throughput of training batches
    #[command(alias = "bench-loader")]
    Loader(loader::LoaderArgs),
    /// Measure the memory bandwidth and the matrix products of this CPU
    Machine(machine::MachineArgs),
}

fn main() -> ExitCode {
    shared::main(|cli: Cli| match cli.command {
        Command::Train(args) => train::run(args),
        Command::Exchange(args) => exchange::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Embed(args) => embed::run(args),
        Command::Kernels(args) => kernels::run(args),
        Command::Load(args) => load::run(args),
        Command::Prepare(args) => prepare::run(args),
        Command::Loader(args) => loader::run(args),
        Command::Machine(args) => machine::run(args),
    })
}
