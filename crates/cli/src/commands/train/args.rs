//! Arguments of `emberlm train`.

use std::ffi::OsString;
use std::io::{IsTerminal, stdin};
use std::path::PathBuf;

use clap::{Args, FromArgMatches, ValueEnum};
use emberlm_data::Packing;
use emberlm_kernels::Precision;
use emberlm_trainer::config::ObjectiveKind;
use emberlm_trainer::presets;
use emberlm_trainer::{Renderer, TrainConfig};

use crate::backend::BackendArg;
use crate::console;
use crate::error::CliError;
use crate::examples;
use crate::memory_guard::MemoryArg;
use crate::new_folder::folder_parser;
use crate::{run_labels, values};

/// Arguments of `train`.
#[derive(Debug, Args)]
#[command(after_help = examples::TRAIN)]
pub struct TrainArgs {
    /// The dataset's folder, made by `emberlm prepare`; several are mixed by weight (default 1 each). A file of records
    /// for the objectives classify, seq2seq, dpo, orpo, simpo, kto and grpo [default: the built-in tales]
    #[arg(long, value_name = "DATASET[=WEIGHT]", num_args = 1.., help_heading = "Data")]
    pub data: Vec<PathBuf>,
    /// The training objective [default: next-token, or that of the model of --from]
    #[arg(long, value_parser = values::objective_parser(), conflicts_with = "resume", help_heading = "Model")]
    pub objective: Option<ObjectiveKind>,
    /// Labelled texts, pairs of texts, preferences or prompts to evaluate on; by default a tenth of --data is held out (data.validation)
    #[arg(
        long = "val",
        alias = "validation",
        value_name = "FILE",
        help_heading = "Data"
    )]
    pub validation: Option<PathBuf>,
    /// A model with its training settings; `emberlm info` lists them
    #[arg(long, value_name = "NAME", default_value = presets::DEFAULT, help_heading = "Model")]
    pub preset: String,
    /// The preset with N blocks; width, heads, batch, tokens, learning rate and weight decay follow from it
    #[arg(long, value_name = "N", value_parser = values::at_least_one, conflicts_with_all = ["from", "resume"], help_heading = "Model")]
    pub depth: Option<usize>,
    /// A model whose weights to start from: a run, checkpoint or Hugging Face directory (train.from)
    #[arg(
        long,
        value_name = "MODEL",
        conflicts_with = "preset",
        help_heading = "Model"
    )]
    pub from: Option<PathBuf>,
    /// Train adapters of --from and freeze its weights: LoRA, or DoRA, which trains the norms of the weights, too (train.adapter)
    #[arg(
        long,
        value_enum,
        value_name = "KIND",
        conflicts_with = "resume",
        help_heading = "Model"
    )]
    pub adapter: Option<AdapterKind>,
    /// Resume a run that was stopped, from its newest complete checkpoint. With --out, fork it, or one of its checkpoints
    /// (RUN/checkpoints/STEP): a new run that continues from there, with other settings if any are given
    #[arg(long, value_name = "RUN", conflicts_with_all = ["preset", "from"], help_heading = "Run")]
    pub resume: Option<PathBuf>,
    /// With --resume: restart a run that has no checkpoint, and delete its log
    #[arg(
        long,
        requires = "resume",
        conflicts_with = "out",
        help_heading = "Run"
    )]
    pub restart: bool,
    /// The run's folder [default: runs/PRESET-NUMBER]
    #[arg(long, value_name = "RUN", value_parser = folder_parser("a run"), help_heading = "Run")]
    pub out: Option<PathBuf>,
    /// A TOML file that overrides the preset
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    pub config: Option<PathBuf>,
    /// A setting that overrides both, such as model.d_model=256; can be repeated
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Model")]
    pub set: Vec<String>,
    /// Number of steps (train.steps), such as 2000 or 2e3
    #[arg(long, value_name = "N", value_parser = values::count, aliases = ["max-steps", "max-iters", "iterations"], help_heading = "Optimization")]
    pub steps: Option<usize>,
    /// Number of passes over the training split; sets train.steps
    #[arg(long, value_name = "N", value_parser = values::positive, conflicts_with_all = ["steps", "resume"], help_heading = "Optimization")]
    pub epochs: Option<f64>,
    /// The learning rate after warm-up (train.schedule.learning_rate); the minimum learning rate is scaled with it
    #[arg(long, value_name = "RATE", visible_alias = "lr", value_parser = values::positive, help_heading = "Optimization")]
    pub learning_rate: Option<f64>,
    /// Sequences per micro-batch (train.micro_batch)
    #[arg(long, value_name = "N", visible_alias = "micro-batch", value_parser = values::count, help_heading = "Optimization")]
    pub batch_size: Option<usize>,
    /// The seed of initial weights, data order and dropout (train.seed)
    #[arg(long, value_name = "N", help_heading = "Optimization")]
    pub seed: Option<u64>,
    /// Documents of one sequence attend to each other (stream) or do not (isolated, or best_fit for less padding) (train.documents)
    #[arg(long, value_name = "PACKING", value_parser = values::packing_parser(), help_heading = "Data")]
    pub documents: Option<Packing>,
    /// Steps between two evaluations (train.evaluation.interval)
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "Optimization")]
    pub eval_interval: Option<usize>,
    /// End the run when N evaluations in a row have not lowered the validation loss, and keep the checkpoint with the lowest,
    /// as --keep-best does (train.evaluation.early_stop)
    #[arg(long, value_name = "N", value_parser = values::at_least_one, help_heading = "Optimization")]
    pub early_stop: Option<usize>,
    /// Micro-batches per step (train.accumulation)
    #[arg(long, value_name = "N", value_parser = values::count, alias = "gradient-accumulation-steps", help_heading = "Optimization")]
    pub accumulation: Option<usize>,
    /// Train on the first batch at every step, to test that the model can learn it: the loss must approach 0
    /// (train.overfit_batch)
    #[arg(long, conflicts_with = "epochs", help_heading = "Optimization")]
    pub overfit_batch: bool,
    /// Recompute activations in the backward pass: less memory, more time (train.recompute)
    #[arg(long, help_heading = "Speed and memory")]
    pub recompute: bool,
    /// Precision of the inputs of matrix products; everything else is f32 (train.precision.products)
    #[arg(long, value_name = "TYPE", value_parser = values::precision_parser(), help_heading = "Speed and memory")]
    pub precision: Option<Precision>,
    /// Evaluate and save a running average of the weights, such as 0.999 (train.ema)
    #[arg(long, value_name = "DECAY", help_heading = "Optimization")]
    pub ema: Option<f64>,
    /// Keep only the newest checkpoints (train.checkpoints.keep_last)
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub keep_last: Option<usize>,
    /// Also keep the checkpoint with the lowest validation loss (train.checkpoints.keep_best)
    #[arg(long, help_heading = "Run")]
    pub keep_best: bool,
    /// A tag of the run; can be repeated (`emberlm runs tag` changes tags later)
    #[arg(long = "tag", value_name = "TAG", value_parser = run_labels::tag, help_heading = "Run")]
    pub tags: Vec<String>,
    /// A note on the run (`emberlm runs note` changes it later)
    #[arg(long, value_name = "TEXT", value_parser = run_labels::note, help_heading = "Run")]
    pub note: Option<String>,
    /// Also write event files for TensorBoard into RUN/tensorboard
    #[arg(long, help_heading = "Output")]
    pub tensorboard: bool,
    /// Steps between records of the norms of each layer's gradients, updates and activations, which `emberlm plot --norms` draws
    /// (train.norms_interval)
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "Output")]
    pub norms_interval: Option<usize>,
    /// The display of progress
    #[arg(long, value_enum, default_value_t = RendererArg::Auto, help_heading = "Output")]
    pub renderer: RendererArg,
    /// Print the memory of a step by component before training
    #[arg(long, help_heading = "Speed and memory")]
    pub memory_report: bool,
    /// Print the resolved configuration with comments, and exit
    #[arg(long, help_heading = "Output")]
    pub print_config: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub memory: MemoryArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// A kind of adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AdapterKind {
    /// Low-rank updates of linear layers
    Lora,
    /// The same, with trained norms of the weights
    Dora,
}

/// The display of a run's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RendererArg {
    /// The dashboard in a terminal, plain lines elsewhere
    Auto,
    /// A dashboard, which needs a terminal
    Dashboard,
    /// A line per logged step, on stderr
    Plain,
}

impl RendererArg {
    /// Resolves `Auto` for this terminal.
    pub fn choose(self) -> Renderer {
        let terminal = console::stdout_is_screen() && stdin().is_terminal();
        match self {
            Self::Auto if terminal => Renderer::Dashboard,
            Self::Auto | Self::Plain => Renderer::Plain,
            Self::Dashboard => Renderer::Dashboard,
        }
    }
}

impl TrainArgs {
    /// Parses the words of a command line after `emberlm`.
    ///
    /// # Errors
    /// Returns an error if a value is not allowed.
    pub fn parse(words: &[OsString]) -> Result<Self, CliError> {
        let command = Self::augment_args(clap::Command::new("train"));
        let parsed = command.try_get_matches_from(words);
        parsed
            .and_then(|matches| Self::from_arg_matches(&matches))
            .map_err(|error| {
                let message = error.to_string();
                let line = message.lines().next().unwrap_or_default();
                CliError::usage(line.trim_start_matches("error: "))
            })
    }

    /// Applies the options that are shorthands for settings.
    pub fn apply(&self, train: &mut TrainConfig) {
        train.steps = self.steps.unwrap_or(train.steps);
        train.micro_batch = self.batch_size.unwrap_or(train.micro_batch);
        if let Some(rate) = self.learning_rate {
            train.schedule.set_learning_rate(rate);
        }
        train.seed = self.seed.unwrap_or(train.seed);
        train.documents = self.documents.unwrap_or(train.documents);
        train.norms_interval = self.norms_interval.unwrap_or(train.norms_interval);
        let evaluation = &mut train.evaluation;
        evaluation.interval = self.eval_interval.unwrap_or(evaluation.interval);
        evaluation.early_stop = self.early_stop.unwrap_or(evaluation.early_stop);
        train.accumulation = self.accumulation.unwrap_or(train.accumulation);
        train.overfit_batch |= self.overfit_batch;
        train.recompute |= self.recompute;
        let products = &mut train.precision.products;
        *products = self.precision.unwrap_or(*products);
        if let Some(kind) = self.adapter {
            let adapter = train.adapter.get_or_insert_default();
            adapter.dora |= kind == AdapterKind::Dora;
        }
        train.ema = self.ema.unwrap_or(train.ema);
        let checkpoints = &mut train.checkpoints;
        checkpoints.keep_last = self.keep_last.unwrap_or(checkpoints.keep_last);
        checkpoints.keep_best |= self.keep_best || self.early_stop.is_some();
    }
}
