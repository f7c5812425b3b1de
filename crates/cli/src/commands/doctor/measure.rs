//! Speed and memory, measured in a child process of `emberlm doctor --full`.

use burn::tensor::Device;
use clap::Args;
use emberlm_kernels::{Precision, TrainingBackend};
use emberlm_model::{TransformerConfig, count};
use emberlm_system::measure::{Figure, Metric, Unit};
use emberlm_trainer::bench::{self, WARM_UP};
use emberlm_trainer::config::PrecisionConfig;
use emberlm_trainer::fit::predict;
use emberlm_trainer::{TrainConfig, memory, memory_report, peak, presets};

use super::full::Size;
use crate::backend::{BackendArg, Job};
use crate::commands::{fit, generate::timing::time_one};
use crate::error::CliError;
use crate::output::print_json;
use crate::values;

/// Arguments of `measure training`, `measure generation` and `measure memory`.
#[derive(Debug, Args)]
pub struct MeasureArgs {
    /// The size of the model
    #[arg(long, value_enum, default_value_t = Size::Full)]
    size: Size,
    /// The factors of matrix products
    #[arg(long, value_name = "TYPE", default_value = Precision::F32.name(), value_parser = values::precision_parser())]
    precision: Precision,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// A subject of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Training steps on random tokens.
    Training,
    /// A prompt, and the tokens after it.
    Generation,
    /// The memory of a training step.
    Memory,
}

/// A model and the amount of work to measure.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub preset: &'static str,
    /// The workload of the same size in the PyTorch program.
    pub peer: &'static str,
    /// Sequences per step.
    pub batch: usize,
    /// Tokens per sequence.
    pub seq_len: usize,
    /// Measured steps, after warm-up.
    pub steps: usize,
    /// Prompt tokens.
    prompt: usize,
    /// Generated tokens.
    tokens: usize,
}

impl Workload {
    pub fn of(size: Size) -> Self {
        match size {
            Size::Small => Self {
                preset: "char-nano",
                peer: "char",
                batch: 4,
                seq_len: 64,
                steps: 5,
                prompt: 32,
                tokens: 16,
            },
            Size::Full => Self {
                preset: "gpt2-small",
                peer: "gpt2-small",
                batch: 8,
                seq_len: 1024,
                steps: 20,
                prompt: 256,
                tokens: 128,
            },
        }
    }
}

/// The command's output: the figures of a subject, or `None` if the device does not support the precision.
pub type Measured = Option<Vec<Figure>>;

/// Measures the subject and prints the figures as JSON.
///
/// # Errors
/// Returns an error if the backend is unavailable or a step fails.
pub fn run(subject: Subject, args: &MeasureArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let workload = Workload::of(args.size);
    let config = presets::run(workload.preset)?;
    let mut model = config.decoder()?.clone();
    // The alphabet size of Tiny Shakespeare, as in the PyTorch program.
    model.vocab_size.get_or_insert(65);
    let measured = backend.run(Measurement {
        subject,
        workload,
        model: TransformerConfig::try_from(model)?,
        train: TrainConfig {
            micro_batch: workload.batch,
            accumulation: 1,
            seq_len: workload.seq_len,
            precision: PrecisionConfig {
                products: args.precision,
                ..config.train.precision
            },
            // Clipping is disabled, as in the PyTorch program.
            clip_norm: 0.0,
            ..config.train
        },
    })??;
    print_json(&measured)
}

struct Measurement {
    subject: Subject,
    workload: Workload,
    model: TransformerConfig,
    train: TrainConfig,
}

impl Job for Measurement {
    type Output = Result<Measured, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        if !B::multiplies_in(self.train.precision.products, &device) {
            return Ok(None);
        }
        let figures = match self.subject {
            Subject::Training => self.training::<B>(&device)?,
            Subject::Generation => self.generation::<B>(&device)?,
            Subject::Memory => self.memory::<B>(&device)?,
        };
        Ok(Some(figures))
    }
}

impl Measurement {
    fn training<B: TrainingBackend>(&self, device: &Device<B>) -> Result<Vec<Figure>, CliError> {
        let steps = self.workload.steps;
        let measured = bench::measure::<B>(&self.model, &self.train, WARM_UP, steps, device)?;
        let products = self.train.precision.products;
        let flops = peak::matrix_product::<B::InnerBackend>(products, device);
        let utilization = 100.0 * measured.utilization(flops);
        let mut figures = vec![
            figure(TRAINING, Unit::TokensPerSecond, measured.tokens_per_second),
            figure("utilization", Unit::Percent, utilization),
            figure("matrix product", Unit::Flops, flops),
        ];
        let memory = [
            ("device memory taken", measured.device_bytes),
            ("peak of resident memory", measured.peak_bytes),
        ];
        let memory = memory.into_iter().filter_map(|(name, bytes)| {
            let bytes = bytes? as f64;
            Some(figure(name, Unit::Bytes, bytes))
        });
        figures.extend(memory);
        Ok(figures)
    }

    /// Measures the second of two generations. The first one compiles and tunes kernels. Each generated token reads all
    /// weights.
    fn generation<B: TrainingBackend>(&self, device: &Device<B>) -> Result<Vec<Figure>, CliError> {
        let decoder = self.model.init::<B::InnerBackend>(1, device);
        let vocab_size = self.model.vocab_size();
        let prompt: Vec<u32> = (0..self.workload.prompt)
            .map(|at| (at * 7919 % vocab_size) as u32)
            .collect();
        time_one(&decoder, &prompt, self.workload.tokens)?;
        let speed = time_one(&decoder, &prompt, self.workload.tokens)?;
        let prompt = speed.prompt_per_second().unwrap_or(f64::NAN);
        let tokens = speed.tokens_per_second().unwrap_or(f64::NAN);
        let read = count::memory(&self.model).weights as f64 * tokens;
        let mut figures = vec![
            figure("prompt", Unit::TokensPerSecond, prompt),
            figure("generation", Unit::TokensPerSecond, tokens),
            figure("weights read", Unit::BytesPerSecond, read),
        ];
        if let Some(bandwidth) = peak::memory_bandwidth::<B::InnerBackend>(device) {
            let share = 100.0 * read / bandwidth;
            figures.push(figure("memory bandwidth", Unit::BytesPerSecond, bandwidth));
            figures.push(figure("utilization of the bandwidth", Unit::Percent, share));
        }
        Ok(figures)
    }

    /// Bytes by component: measured on a device with its own memory, otherwise predicted.
    fn memory<B: TrainingBackend>(&self, device: &Device<B>) -> Result<Vec<Figure>, CliError> {
        let measured = memory_report::measure::<B>(&self.model, &self.train, device)?;
        let rows = match measured {
            Some(report) => vec![
                ("weights", report.weights),
                ("optimizer", report.optimizer),
                ("gradients", report.gradients),
                ("activations", report.activations),
                ("head", report.head),
                ("batch", report.batch),
                ("taken from the device", report.reserved),
            ],
            None => {
                let program = memory::resident().unwrap_or(0);
                let predicted = predict(&self.model, &self.train, program)?;
                let parts = fit::parts(&predicted).map(|(name, bytes, _)| (name, bytes));
                let total = ("predicted total", predicted.total);
                parts.into_iter().chain([total]).collect()
            }
        };
        let figures = rows
            .into_iter()
            .map(|(name, bytes)| figure(name, Unit::Bytes, bytes as f64));
        Ok(figures.collect())
    }
}

/// The name of the training speed.
pub const TRAINING: &str = "training";

fn figure(name: &str, unit: Unit, value: f64) -> Figure {
    Figure {
        metric: Metric::new(name, unit),
        values: vec![value],
    }
}
