//! `emberlm measure`: measures speed and memory in a child process of `emberlm doctor --full`.

use burn::tensor::Device;
use clap::{Args, ValueEnum};
use emberlm_kernels::{Precision, TrainingBackend};
use emberlm_model::{DecoderConfig, count};
use emberlm_trainer::bench::{self, WARM_UP};
use emberlm_trainer::config::PrecisionConfig;
use emberlm_trainer::fit::predict;
use emberlm_trainer::{TrainConfig, memory, memory_report, peak, presets};
use serde::{Deserialize, Serialize};

use super::full::Size;
use crate::backend::{BackendArg, Job};
use crate::commands::{fit, generate::timing::time_one};
use crate::error::CliError;
use crate::output::print_json;
use crate::values;

/// Arguments of `measure`.
#[derive(Debug, Args)]
pub struct MeasureArgs {
    /// The subject
    #[arg(value_enum)]
    subject: Subject,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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

/// Speed and memory of training.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TrainingSpeed {
    /// Tokens per second of the median step.
    pub tokens_per_second: f64,
    /// Model FLOP/s relative to those of a large matrix product in the same precision.
    pub utilization: f64,
    /// FLOP/s of that matrix product.
    pub product_flops: f64,
    /// Bytes of device memory in use, on a device with its own memory.
    pub device_bytes: Option<u64>,
    /// Peak resident memory of the process in bytes.
    pub peak_bytes: Option<u64>,
}

/// Speed of generation.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GenerationSpeed {
    /// Prompt processing speed in tokens per second.
    pub prompt: f64,
    /// Generation speed in tokens per second.
    pub tokens: f64,
    /// Size of the weights in bytes. Each generated token reads all of them.
    pub weights: f64,
    /// Peak memory bandwidth in bytes per second, for a device with its own memory.
    pub bandwidth: Option<f64>,
}

/// The command's output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measured {
    Training(TrainingSpeed),
    Generation(GenerationSpeed),
    /// Bytes by component: measured on a device with its own memory, otherwise predicted.
    Memory(Vec<(String, u64)>),
    /// The device does not support the precision.
    NotSupported,
}

/// Runs the command.
///
/// # Errors
/// Returns an error if the backend is unavailable or a step fails.
pub fn run(args: MeasureArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let workload = Workload::of(args.size);
    let config = presets::run(workload.preset)?;
    let mut model = config.model.decoder()?.clone();
    // The alphabet size of Tiny Shakespeare, as in the PyTorch program.
    model.vocab_size.get_or_insert(65);
    let measured = backend.run(Measurement {
        subject: args.subject,
        workload,
        model: DecoderConfig::try_from(model)?,
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
    model: DecoderConfig,
    train: TrainConfig,
}

impl Job for Measurement {
    type Output = Result<Measured, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        if !B::multiplies_in(self.train.precision.products, &device) {
            return Ok(Measured::NotSupported);
        }
        Ok(match self.subject {
            Subject::Training => Measured::Training(self.training::<B>(&device)?),
            Subject::Generation => Measured::Generation(self.generation::<B>(&device)?),
            Subject::Memory => Measured::Memory(self.memory::<B>(&device)?),
        })
    }
}

impl Measurement {
    fn training<B: TrainingBackend>(&self, device: &Device<B>) -> Result<TrainingSpeed, CliError> {
        let steps = self.workload.steps;
        let measured = bench::measure::<B>(&self.model, &self.train, WARM_UP, steps, device)?;
        let products = self.train.precision.products;
        let product_flops = peak::matrix_product::<B::InnerBackend>(products, device);
        Ok(TrainingSpeed {
            tokens_per_second: measured.tokens_per_second,
            utilization: measured.utilization(product_flops),
            product_flops,
            device_bytes: measured.device_bytes,
            peak_bytes: measured.peak_bytes,
        })
    }

    /// Measures the second of two generations. The first one compiles and tunes kernels.
    fn generation<B: TrainingBackend>(
        &self,
        device: &Device<B>,
    ) -> Result<GenerationSpeed, CliError> {
        let decoder = self.model.init::<B::InnerBackend>(1, device);
        let vocab_size = self.model.vocab_size();
        let prompt: Vec<u32> = (0..self.workload.prompt)
            .map(|at| (at * 7919 % vocab_size) as u32)
            .collect();
        time_one(&decoder, &prompt, self.workload.tokens)?;
        let speed = time_one(&decoder, &prompt, self.workload.tokens)?;
        Ok(GenerationSpeed {
            prompt: speed.prompt_per_second().unwrap_or(f64::NAN),
            tokens: speed.tokens_per_second().unwrap_or(f64::NAN),
            weights: count::memory(&self.model).weights as f64,
            bandwidth: peak::memory_bandwidth::<B::InnerBackend>(device),
        })
    }

    fn memory<B: TrainingBackend>(
        &self,
        device: &Device<B>,
    ) -> Result<Vec<(String, u64)>, CliError> {
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
        let named = rows
            .into_iter()
            .map(|(name, bytes)| (name.to_owned(), bytes));
        Ok(named.collect())
    }
}
