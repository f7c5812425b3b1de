//! `emberlm measure step`: counts the work of a training step, and of a decoded token, on a GPU.

use clap::Args;

use crate::backend::BackendArg;
#[cfg(feature = "gpu")]
use crate::backend::{Job, Placement};
use crate::error::CliError;
use crate::values;

/// Arguments of `measure step`.
#[derive(Debug, Args)]
pub struct StepArgs {
    /// The model and its training settings
    #[arg(long, value_name = "NAME")]
    pub preset: String,
    /// Sequences per step
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::at_least_one)]
    pub batch: usize,
    /// A value that overrides the preset, such as train.seq_len=64 or train.precision.products=f16; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Also count the work of one decoded token
    #[arg(long)]
    pub decode: bool,
    /// Print {"preset", "backend", "device", "batch", "seq_len", "precision", "layers", "launches", "synchronizations",
    /// "uploads", "bytes_read", "bytes_written", "products": [{"matrices", "m", "n", "k", "operands", "result", "count"}],
    /// "kernels": [{"name", "launches", "bytes_read", "bytes_written"}], "decode": {…}}
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Runs the command.
///
/// # Errors
/// Returns an error if the configuration is invalid, the backend is unavailable or runs on the CPU, or a step fails.
pub fn run(args: StepArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    #[cfg(feature = "gpu")]
    return counted::run(args, backend);
    #[cfg(not(feature = "gpu"))]
    Err(backend.without_kernels())
}

#[cfg(feature = "gpu")]
mod counted {
    use burn::tensor::Device;
    use emberlm_generate::{GenerateOptions, Generator, SamplerConfig};
    use emberlm_kernels::meter::{Costs, measure};
    use emberlm_kernels::{Precision, TrainingBackend};
    use emberlm_model::TransformerConfig;
    use emberlm_trainer::bench::{observe_step, pseudo_random};
    use emberlm_trainer::{TrainConfig, presets, run_config};
    use serde::Serialize;

    use super::*;
    use crate::output::{Align, Table, print, print_json};

    /// Training steps before the counted one, and decoded tokens before the counted one: the optimizer's state exists, and
    /// kernels are compiled and chosen.
    const WARM_UP: usize = 2;

    /// The longest prompt before the decoded token.
    const PROMPT: usize = 64;

    pub(super) fn run(args: StepArgs, backend: Placement) -> Result<(), CliError> {
        let config = run_config::layered(presets::run(&args.preset)?, None, &args.set)?;
        let mut model = config.model;
        // The characters of Tiny Shakespeare.
        model.vocab_size.get_or_insert(65);
        let layers = model.n_layers;
        let model = TransformerConfig::try_from(model)?;
        let train = TrainConfig {
            micro_batch: args.batch,
            accumulation: 1,
            ..config.train
        };
        train.check()?;
        let head = Measured {
            preset: args.preset,
            backend: backend.name(),
            device: backend.device_name(),
            batch: args.batch,
            seq_len: train.sequence_tokens(model.seq_len())?,
            precision: train.precision.products,
            layers,
            training: Costs::default(),
            decode: None,
        };
        let (training, decode) = backend.run_metered(Counting {
            model,
            train,
            decodes: args.decode,
        })??;
        let measured = Measured {
            training,
            decode,
            ..head
        };
        match args.json {
            true => print_json(&measured),
            false => print(&measured.table()),
        }
    }

    /// The command's output.
    #[derive(Debug, Serialize)]
    struct Measured {
        preset: String,
        backend: &'static str,
        device: Option<String>,
        batch: usize,
        seq_len: usize,
        precision: Precision,
        layers: usize,
        #[serde(flatten)]
        training: Costs,
        #[serde(skip_serializing_if = "Option::is_none")]
        decode: Option<Costs>,
    }

    impl Measured {
        fn table(&self) -> String {
            let steps = [
                ("training step", Some(&self.training)),
                ("token", self.decode.as_ref()),
            ];
            let mut text = String::new();
            for (name, costs) in steps {
                let Some(costs) = costs else { continue };
                text.push_str(&format!(
                    "{name}: {} launches, {} synchronizations, {:.1} MB read, {:.1} MB written\n",
                    costs.launches,
                    costs.synchronizations,
                    costs.bytes_read as f64 / 1e6,
                    costs.bytes_written as f64 / 1e6,
                ));
                let mut table = Table::new([Align::Left, Align::Right, Align::Right, Align::Right]);
                table.row(["kernel", "launches", "MB read", "MB written"]);
                for kernel in &costs.kernels {
                    table.row([
                        kernel.name.clone(),
                        kernel.launches.to_string(),
                        format!("{:.1}", kernel.bytes_read as f64 / 1e6),
                        format!("{:.1}", kernel.bytes_written as f64 / 1e6),
                    ]);
                }
                text.push_str(&table.render());
            }
            text
        }
    }

    struct Counting {
        model: TransformerConfig,
        train: TrainConfig,
        decodes: bool,
    }

    impl Job for Counting {
        type Output = Result<(Costs, Option<Costs>), CliError>;

        fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
            let precision = self.train.precision.products;
            if !B::multiplies_in(precision, &device) {
                return Err(CliError::usage(format!(
                    "`train.precision.products` must be a type that the device multiplies in (got {})",
                    precision.name()
                )));
            }
            // A device that fails ends the process.
            let settle = || drop(B::sync(&device));
            let (taken, training) =
                observe_step::<B, _>(&self.model, &self.train, WARM_UP, &device, |step| {
                    measure(settle, step)
                })?;
            taken?;
            let decode = self.decodes.then(|| self.decode::<B>(&device, settle));
            Ok((training, decode.transpose()?))
        }
    }

    impl Counting {
        /// The work of a token after a prompt and others.
        fn decode<B: TrainingBackend>(
            &self,
            device: &Device<B>,
            settle: impl Fn(),
        ) -> Result<Costs, CliError> {
            let model = self.model.init::<B::InnerBackend>(self.train.seed, device);
            let mut id = pseudo_random(self.model.vocab_size());
            let length = (self.model.seq_len() / 2).clamp(1, PROMPT);
            let prompt: Vec<u32> = (0..length).map(|_| id()).collect();
            let options = GenerateOptions {
                max_new_tokens: WARM_UP + 2,
                chooser: SamplerConfig::greedy().into(),
                ..GenerateOptions::default()
            };
            let mut tokens = Generator::new(&model, &prompt, &options)?;
            for token in tokens.by_ref().take(WARM_UP) {
                token?;
            }
            let (token, costs) = measure(settle, || tokens.next());
            if let Some(token) = token {
                token?;
            }
            Ok(costs)
        }
    }
}
