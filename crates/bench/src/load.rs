//! `emberlm-bench load`: the time and memory of loading a model. `cargo xtask bench load` runs it.

use std::path::PathBuf;
use std::time::Instant;

use burn::tensor::Device;
use clap::Args;
use emberlm_checkpoint::Model;
use emberlm_kernels::TrainingBackend;
use emberlm_model::count;
use emberlm_trainer::memory::peak_rss_mib;

use emberlm_cli::shared::CliError;
use emberlm_cli::shared::{BackendArg, Job};

/// Arguments of `load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// A run, checkpoint or Hugging Face directory
    pub model: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Runs the command and prints the result as JSON.
///
/// # Errors
/// The model cannot be read.
pub fn run(args: LoadArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let model = emberlm_cli::shared::open_model(&args.model)?;
    let before = peak_rss_mib();
    let seconds = backend.run(Load { model: &model })??;
    let weights = count::memory(model.config()).weights as f64 / f64::from(1 << 20);
    let peak = peak_rss_mib();
    let ratio = peak
        .zip(before)
        .map(|(peak, before)| (peak - before) as f64 / weights);
    let rounded = |x: f64| (x * 1000.0).round() / 1000.0;
    emberlm_cli::shared::print_json(&serde_json::json!({
        "model": args.model.display().to_string(),
        "stored_in": model.element()?.name(),
        "weights_mib": rounded(weights),
        "seconds": rounded(seconds),
        "rss_before_mib": before,
        "peak_rss_mib": peak,
        "peak_of_weights": ratio.map(rounded),
    }))
}

struct Load<'a> {
    model: &'a Model,
}

impl Job for Load<'_> {
    type Output = Result<f64, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let started = Instant::now();
        let decoder = self.model.decoder::<B::InnerBackend>(&device)?;
        let seconds = started.elapsed().as_secs_f64();
        drop(decoder);
        Ok(seconds)
    }
}
