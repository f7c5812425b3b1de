//! `cargo xtask bench`: builds the release binary, measures it, and compares it with other programs on request.
//!
//! Map: `train`, `peers`, `char_nano`, `generate`, `draft`, `scaling`, `backends`, `kernels`, `load`, `loader`, `prepare`
//! and `serve` are the benchmarks, `programs` what they run, `measurement` what each training run prints, `report` the format of their results.

mod backends;
mod char_nano;
mod draft;
mod generate;
mod kernels;
mod load;
mod loader;
mod measurement;
mod peers;
mod prepare;
pub mod programs;
pub mod report;
mod scaling;
mod serve;
mod train;

use std::{path::PathBuf, process::ExitCode};

use cargo_metadata::Metadata;

use crate::error::Error;

/// Arguments of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Debug, clap::Subcommand)]
enum Subject {
    /// Training steps: tokens/s, seconds per step and peak resident memory.
    Train(train::TrainArgs),
    /// Training steps beside PyTorch's, as it is, compiled and with memory kept: ratios of tokens/s and memory.
    Peers(peers::PeersArgs),
    /// A whole run of the character model on Tiny Shakespeare beside nanoGPT's own: seconds and validation loss.
    CharNano(char_nano::CharNanoArgs),
    /// Generation: tokens/s of a prompt and after it, beside transformers' and what the machine allows.
    Generate(generate::GenerateArgs),
    /// Speculative decoding: the cost of a pass over draft tokens, and the acceptance rate from which it pays.
    Draft(draft::DraftArgs),
    /// Training steps of wider models, longer sequences and larger batches: tokens/s and memory as a table and a plot.
    Scaling(scaling::ScalingArgs),
    /// The same run on several backends: the curves of their losses, and how far they are apart.
    Backends(backends::BackendsArgs),
    /// Operations: milliseconds and rates of each, next to its reference implementation.
    Kernels(kernels::KernelsArgs),
    /// Reading a model: seconds and peak resident memory beside the weights' size.
    Load(load::LoadArgs),
    /// Preparing a corpus: MB/s, tokens/s and peak resident memory, beside tiktoken-rs and Python's tiktoken.
    Prepare(prepare::PrepareArgs),
    /// Making batches: tokens/s of each way to load, beside a small model's training.
    Loader(loader::LoaderArgs),
    /// The server: tokens/s and latencies of one client and of many at once; or a storm that it must stand.
    Serve(serve::ServeArgs),
}

/// Builds the release binary with the default backend, for the tasks that need its speed.
pub fn release(metadata: &Metadata) -> Result<PathBuf, Error> {
    programs::build("flex")?;
    Ok(programs::Program::Emberlm.path(metadata).into())
}

/// Runs the benchmark.
pub fn run(args: &BenchArgs) -> Result<ExitCode, Error> {
    match &args.subject {
        Subject::Train(args) => train::run(args)?,
        Subject::Peers(args) => peers::run(args)?,
        Subject::CharNano(args) => char_nano::run(args)?,
        Subject::Generate(args) => generate::run(args)?,
        Subject::Draft(args) => draft::run(args)?,
        Subject::Scaling(args) => scaling::run(args)?,
        Subject::Backends(args) => backends::run(args)?,
        Subject::Kernels(args) => kernels::run(args)?,
        Subject::Load(args) => load::run(args)?,
        Subject::Prepare(args) => prepare::run(args)?,
        Subject::Loader(args) => loader::run(args)?,
        Subject::Serve(args) => serve::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}
