//! `emberlm-bench loader`: the throughput of training batches. `cargo xtask bench loader` runs it.

use std::path::PathBuf;

use burn::tensor::Device;
use clap::Args;
use emberlm_data::Packing;
use emberlm_kernels::TrainingBackend;
use emberlm_trainer::bench::measure_loader;
use emberlm_trainer::{TrainConfig, TrainError, TrainingData};

use emberlm_cli::shared::CliError;
use emberlm_cli::shared::datasets;
use emberlm_cli::shared::packing_parser;
use emberlm_cli::shared::print_json;
use emberlm_cli::shared::{BackendArg, Job};

/// Arguments of `loader`.
#[derive(Debug, Args)]
pub struct LoaderArgs {
    /// The datasets, as in `emberlm train`
    #[arg(long, value_name = "DATASET[=WEIGHT]", num_args = 1.., required = true)]
    pub data: Vec<PathBuf>,
    /// The packing of documents into sequences
    #[arg(long, value_name = "HOW", value_parser = packing_parser(), default_value = Packing::Stream.name())]
    pub documents: Packing,
    /// Threads that make batches
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub workers: usize,
    /// Sequences per batch
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub batch: usize,
    /// Tokens per sequence
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub seq_len: usize,
    /// Measured batches, after a tenth as many warm-up batches
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub batches: usize,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Runs the command and prints the result as JSON.
///
/// # Errors
/// The datasets cannot be read.
pub fn run(args: LoaderArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let data = TrainingData::open(&datasets(&args.data)?)?;
    let train = TrainConfig {
        seq_len: args.seq_len,
        micro_batch: args.batch,
        documents: args.documents,
        loader_workers: args.workers,
        ..TrainConfig::default()
    };
    train.check()?;
    let tokens_per_second = backend.run(Bench {
        data: &data,
        train,
        batches: args.batches,
    })??;
    print_json(&serde_json::json!({
        "datasets": args.data.len(),
        "documents": args.documents,
        "workers": args.workers,
        "batch": args.batch,
        "seq_len": args.seq_len,
        "tokens_per_second": tokens_per_second.round(),
    }))
}

struct Bench<'a> {
    data: &'a TrainingData,
    train: TrainConfig,
    batches: usize,
}

impl Job for Bench<'_> {
    type Output = Result<f64, TrainError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        measure_loader::<B>(self.data, &self.train, self.batches, &device)
    }
}
