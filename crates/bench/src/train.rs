//! `emberlm-bench train`: training speed on random tokens. `cargo xtask bench train` runs it.

use std::sync::Arc;

use burn::tensor::Device;
use clap::Args;
use emberlm_kernels::{Precision, TrainingBackend};
use emberlm_model::TransformerConfig;
use emberlm_trainer::bench::{Measured, WARM_UP, measure_among};
use emberlm_trainer::config::PrecisionConfig;
use emberlm_trainer::peak::matrix_product;
use emberlm_trainer::{OrderedPeers, Peers, TrainConfig};

use emberlm_cli::shared::CliError;
use emberlm_cli::shared::precision_parser;
use emberlm_cli::shared::{BackendArg, Job, Ranks};
use emberlm_trainer::{presets, run_config};

use crate::link::Link;

/// Arguments of `train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// The model
    #[arg(long, value_name = "NAME", default_value = "char-nano")]
    pub preset: String,
    /// Measured steps, after three warm-up steps
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub steps: usize,
    /// Sequences per step, on each of several ranks
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub batch: usize,
    /// A value that overrides the preset, such as train.seq_len=64; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Recompute each block in the backward pass: less memory, more time (train.recompute)
    #[arg(long)]
    pub recompute: bool,
    /// The precision of matrix products (train.precision.products)
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = precision_parser())]
    pub precision: Precision,
    /// Also measure the matrix product, and print the model's throughput relative to it
    #[arg(long)]
    pub utilization: bool,
    /// The bandwidth of each rank's link to the others in GB/s, which is simulated by waiting
    #[arg(long, value_name = "GB/S")]
    pub link: Option<f64>,
    /// Accepted for compatibility; the result is always JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Runs the command, on one of the ranks that a launcher may have started.
///
/// # Errors
/// The preset or the backend does not exist.
pub fn run(args: TrainArgs) -> Result<(), CliError> {
    let ranks = Ranks::join()?;
    let result = run_as(args, &ranks);
    ranks.end(result)
}

fn run_as(args: TrainArgs, ranks: &Ranks) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let config = run_config::layered(presets::run(&args.preset)?, None, &args.set)?;
    let mut model = config.decoder()?.clone();
    let train = TrainConfig {
        micro_batch: args.batch.max(1),
        accumulation: ranks.rank().world_size(),
        recompute: args.recompute,
        precision: PrecisionConfig {
            products: args.precision,
            ..config.train.precision
        },
        // The peers are measured without clipping.
        clip_norm: 0.0,
        ..config.train
    };
    // The characters of Tiny Shakespeare, as in the PyTorch twin.
    model.vocab_size.get_or_insert(65);
    let model = TransformerConfig::try_from(model)?;
    let seq_len = train.sequence_tokens(model.seq_len())?;
    let (measured, peak) = backend.run(Bench {
        ranks,
        model,
        train,
        steps: args.steps.max(1),
        link: args.link,
        utilization: args.utilization,
    })??;
    if !ranks.rank().is_zero() {
        return Ok(());
    }
    let recomputing = if args.recompute { ", recomputing" } else { "" };
    let line = serde_json::json!({
        "peer": format!("emberlm {} {backend}{recomputing}", env!("CARGO_PKG_VERSION")),
        "workload": args.preset,
        "batch": args.batch,
        "ranks": ranks.rank().world_size(),
        "recompute": args.recompute,
        "precision": args.precision.name(),
        "seq_len": seq_len,
        "threads": std::thread::available_parallelism().map_or(1, usize::from),
        "parameters": measured.parameters,
        "tokens_per_second": (measured.tokens_per_second * 10.0).round() / 10.0,
        "seconds_per_step": (measured.seconds_per_step * 1e5).round() / 1e5,
        "peak_rss_mib": measured.peak_bytes.map(|bytes| bytes >> 20),
        "device_mib": measured.device_bytes.map(|bytes| bytes >> 20),
        "product_gflops": peak.map(|flops| (flops / 1e9).round()),
        "utilization": peak.map(|flops| (measured.utilization(flops) * 1e4).round() / 1e4),
    });
    emberlm_cli::shared::print_json(&line)
}

struct Bench<'a> {
    ranks: &'a Ranks,
    model: TransformerConfig,
    train: TrainConfig,
    steps: usize,
    link: Option<f64>,
    utilization: bool,
}

impl Job for Bench<'_> {
    type Output = Result<(Measured, Option<f64>), CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let peers: Arc<dyn Peers<B::InnerBackend>> = match (self.link, self.ranks.transport()) {
            (Some(_), Some(transport)) => {
                Arc::new(OrderedPeers::new(Link::new(transport, self.link)))
            }
            _ => self.ranks.peers(self.train.exchange, &device)?,
        };
        let measured = measure_among::<B>(
            &self.model,
            &self.train,
            peers,
            WARM_UP,
            self.steps,
            &device,
        )?;
        let peak = || matrix_product::<B::InnerBackend>(self.train.precision.products, &device);
        Ok((measured, self.utilization.then(peak)))
    }
}
