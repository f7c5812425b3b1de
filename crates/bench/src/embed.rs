//! `emberlm-bench embed`: texts per second of an encoder, from text to vector. `cargo xtask bench embed` runs it.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use burn::tensor::Device;
use clap::Args;
use emberlm_checkpoint::EncoderModel;
use emberlm_kernels::TrainingBackend;
use emberlm_system::measure::median;
use emberlm_trainer::memory::peak_rss_mib;

use emberlm_cli::shared::CliError;
use emberlm_cli::shared::{BackendArg, Job};

/// Arguments of `embed`.
#[derive(Debug, Args)]
pub struct EmbedArgs {
    /// A Hugging Face directory of an encoder
    pub model: PathBuf,
    /// A file with a text per line
    pub texts: PathBuf,
    /// Measured passes over all texts, after one warm-up
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub rounds: usize,
    /// Write the vectors into this file, as f32, little-endian
    #[arg(long, value_name = "FILE")]
    pub vectors: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Runs the command and prints the result as JSON. Times do not include loading the model.
///
/// # Errors
/// The model or the texts cannot be read, or the vectors cannot be written.
pub fn run(args: EmbedArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let text = fs::read_to_string(&args.texts)
        .map_err(|error| CliError::new(format!("cannot read {}: {error}", args.texts.display())))?;
    let texts: Vec<&str> = text.lines().collect();
    let model = EncoderModel::open(&args.model)?;
    let measured = backend.run(Embed {
        model: &model,
        texts: &texts,
        rounds: args.rounds.max(1),
    })??;
    if let Some(path) = &args.vectors {
        let numbers = measured.vectors.iter().flatten();
        let bytes: Vec<u8> = numbers.flat_map(|number| number.to_le_bytes()).collect();
        fs::write(path, bytes)
            .map_err(|error| CliError::new(format!("cannot write {}: {error}", path.display())))?;
    }
    let rate = |count: usize| (count as f64 / measured.seconds * 10.0).round() / 10.0;
    emberlm_cli::shared::print_json(&serde_json::json!({
        "program": format!("emberlm {} {}", env!("CARGO_PKG_VERSION"), measured.backend),
        "texts": texts.len(),
        "tokens": measured.tokens,
        "texts_per_second": rate(texts.len()),
        "tokens_per_second": rate(measured.tokens),
        "peak_rss_mib": peak_rss_mib(),
    }))
}

/// The median pass over the texts.
struct Measured {
    seconds: f64,
    tokens: usize,
    vectors: Vec<Vec<f32>>,
    backend: String,
}

struct Embed<'a> {
    model: &'a EncoderModel,
    texts: &'a [&'a str],
    rounds: usize,
}

impl Job for Embed<'_> {
    type Output = Result<Measured, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let embedder = self.model.embedder::<B::InnerBackend>(&device)?;
        let vectors = embedder.embed(self.texts)?;
        let mut seconds = Vec::new();
        for _ in 0..self.rounds {
            let started = Instant::now();
            embedder.embed(self.texts)?;
            seconds.push(started.elapsed().as_secs_f64());
        }
        let mut tokens = 0;
        for text in self.texts {
            tokens += embedder.sequences().encode(text)?.ids.len();
        }
        Ok(Measured {
            seconds: median(seconds),
            tokens,
            vectors,
            backend: <B::InnerBackend as burn::tensor::backend::Backend>::name(&device),
        })
    }
}
