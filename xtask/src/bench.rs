//! `cargo xtask bench`: builds the release binary, measures it and, on request, compares it with other
//! programs.
//!
//! Map: `train`, `peers`, `char_nano`, `generate`, `draft`, `embed`, `finetune`, `llama`, `scaling`, `backends`, `kernels`, `load`, `loader`,
//! `prepare`, `ranks` and `serve` are the benchmarks. `programs` builds and runs the measured programs, `training` has
//! the command lines of training steps, and `session` the record of the results
//! ([`emberlm_system::measure`]).

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
mod peak_memory;
mod peers;
mod prepare;
pub mod programs;
mod ranks;
mod scaling;
mod serve;
mod session;
mod train;
mod training;

use std::{num::NonZero, path::PathBuf, process::ExitCode};

use cargo_metadata::Metadata;

use self::session::Session;
use crate::error::Error;

/// Arguments of `cargo xtask bench`.
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    subject: Subject,
    /// Runs of each program; the tables have medians, and half the range of the values in percent [default: 5 for peers
    /// and llama, 7 for kernels, 3 for other comparisons, 1 without a comparison].
    #[arg(long, global = true)]
    rounds: Option<NonZero<usize>>,
    /// Print the record with every repetition as one line of JSON instead of tables in Markdown.
    #[arg(long, global = true)]
    json: bool,
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
    /// Training steps over model width, sequence length and batch size: tokens/s and memory.
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

/// Runs the benchmark and prints its record.
pub fn run(args: &BenchArgs) -> Result<ExitCode, Error> {
    let mut session = Session::new(args.rounds)?;
    measure(&args.subject, &mut session)?;
    match &session.record {
        record if args.json => println!("{}", serde_json::json!(record)),
        record => print!("{}", record.to_markdown()),
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(subject: &Subject, session: &mut Session) -> Result<(), Error> {
    match subject {
        Subject::Train(args) => train::run(args, session),
        Subject::Peers(args) => peers::run(args, session),
        Subject::CharNano(args) => char_nano::run(args, session),
        Subject::Generate(args) => generate::run(args, session),
        Subject::Llama(args) => llama::run(args, session),
        Subject::Draft(args) => draft::run(args, session),
        Subject::Embed(args) => embed::run(args, session),
        Subject::Finetune(args) => finetune::run(args, session),
        Subject::Scaling(args) => scaling::run(args, session),
        Subject::Backends(args) => backends::run(args, session),
        Subject::Kernels(args) => kernels::run(args, session),
        Subject::Load(args) => load::run(args, session),
        Subject::Prepare(args) => prepare::run(args, session),
        Subject::Ranks(args) => ranks::run(args, session),
        Subject::Loader(args) => loader::run(args, session),
        Subject::Serve(args) => serve::run(args, session),
    }
}
