//! `cargo xtask bench`: builds the release binary, measures it and, on request, compares it with other
//! programs.
//!
//! Map: `train`, `peers`, `char_nano`, `generate`, `draft`, `embed`, `finetune`, `llama`, `scaling`, `backends`, `kernels`, `load`, `loader`,
//! `prepare`, `ranks` and `serve` are the benchmarks. `programs` builds and runs the measured programs, `measurement`
//! parses the output of training runs, and `report` formats results.

mod backends;
mod char_nano;
mod draft;
mod embed;
mod finetune;
mod generate;
mod kernels;
mod llama;
mod load;
mod loader;
mod measurement;
mod peak_memory;
mod peers;
mod prepare;
pub mod programs;
mod ranks;
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
    /// Training steps compared with PyTorch (eager, compiled, and with memory kept): ratios of tokens/s and
    /// memory.
    Peers(peers::PeersArgs),
    /// A complete run of the character model on Tiny Shakespeare compared with nanoGPT: seconds and validation
    /// loss.
    CharNano(char_nano::CharNanoArgs),
    /// Generation: tokens/s of the prompt and of new tokens, compared with transformers and the machine's
    /// bounds.
    Generate(generate::GenerateArgs),
    /// GGUF files: tokens/s of decoding and of prompts, and peak memory, compared with llama.cpp.
    Llama(llama::LlamaArgs),
    /// Speculative decoding: the cost of a pass over draft tokens, and the break-even acceptance rate.
    Draft(draft::DraftArgs),
    /// Embeddings of texts: texts/s, compared with sentence-transformers and onnxruntime.
    Embed(embed::EmbedArgs),
    /// Steps of LoRA on a model: tokens/s and peak memory, compared with PEFT on PyTorch.
    Finetune(finetune::FinetuneArgs),
    /// Training steps over model width, sequence length and batch size: tokens/s and memory as a table and a
    /// plot.
    Scaling(scaling::ScalingArgs),
    /// The same run on several backends: the loss curves and their differences.
    Backends(backends::BackendsArgs),
    /// Operations: time and throughput of each, compared with its reference implementation.
    Kernels(kernels::KernelsArgs),
    /// Loading a model: seconds and peak resident memory, compared with the size of the weights.
    Load(load::LoadArgs),
    /// Preparing a corpus: MB/s, tokens/s and peak resident memory, compared with tiktoken-rs and Python's
    /// tiktoken.
    Prepare(prepare::PrepareArgs),
    /// Training on two ranks compared with one process on the same cores, and the cost of the exchange between ranks.
    Ranks(ranks::RanksArgs),
    /// Batches: tokens/s of each loading mode, compared with the training of a small model.
    Loader(loader::LoaderArgs),
    /// The server: tokens/s and latency with one client and with many.
    Serve(serve::ServeArgs),
}

/// Builds the release binary with the default backend, for tasks that need an optimized binary.
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
        Subject::Llama(args) => llama::run(args)?,
        Subject::Draft(args) => draft::run(args)?,
        Subject::Embed(args) => embed::run(args)?,
        Subject::Finetune(args) => finetune::run(args)?,
        Subject::Scaling(args) => scaling::run(args)?,
        Subject::Backends(args) => backends::run(args)?,
        Subject::Kernels(args) => kernels::run(args)?,
        Subject::Load(args) => load::run(args)?,
        Subject::Prepare(args) => prepare::run(args)?,
        Subject::Ranks(args) => ranks::run(args)?,
        Subject::Loader(args) => loader::run(args)?,
        Subject::Serve(args) => serve::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}
