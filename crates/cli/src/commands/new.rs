//! `emberlm new`: creates a model with initial weights.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use clap::Args;
use emberlm_data::Packing;
use emberlm_kernels::TrainingBackend;
use emberlm_model::{TransformerConfig, WeightFormat, count};
use emberlm_tokenizer::{Tokenizer, TokenizerChoice, TokenizerKind};
use emberlm_trainer::checkpoint::{Description, write_untrained};
use emberlm_trainer::fit::InferenceWork;
use emberlm_trainer::{presets, run_config};
use indicatif::HumanCount;

use crate::backend::{BackendArg, Job};
use crate::error::CliError;
use crate::examples;
use crate::memory_guard::MemoryArg;
use crate::new_folder::{NewFolder, folder_parser};
use crate::output::print;
use crate::values;

/// Arguments of `new`.
#[derive(Debug, Args)]
#[command(after_help = examples::NEW)]
pub struct NewArgs {
    /// The model: a decoder that `emberlm info` lists; bert-nano, a small encoder; or t5-nano, a small encoder–decoder
    #[arg(long, value_name = "NAME")]
    pub preset: String,
    /// The tokenizer, which sets the number of token ids: gpt2, p50k, cl100k, o200k, byte, or a path [default: none; the model
    /// takes token ids only]
    #[arg(long, value_name = "NAME|PATH", value_parser = values::tokenizer)]
    pub tokenizer: Option<TokenizerChoice>,
    /// The model's folder
    #[arg(long, value_name = "MODEL", value_parser = folder_parser("a model"))]
    pub out: PathBuf,
    /// The seed of the initial weights
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Number of token ids, such as 50304 for GPT-2's padded to a multiple of 64 [default: the tokenizer's or the preset's]
    #[arg(long, value_name = "N", value_parser = values::at_least_one)]
    pub vocab_size: Option<usize>,
    /// A setting that overrides the preset, such as model.n_layers=2; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Replace an existing model
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub memory: MemoryArg,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub backend: BackendArg,
}

/// Writes the model.
pub fn run(args: NewArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let tokenizer = args.tokenizer.as_ref().map(open_tokenizer).transpose()?;
    if let (Some(size), Some(tokenizer)) = (args.vocab_size, &tokenizer)
        && size < tokenizer.vocab_size()
    {
        let ids = tokenizer.vocab_size();
        let message = format!("--vocab-size {size}: must be at least {ids}, the tokenizer's ids");
        return Err(CliError::usage(message).hint("leave --vocab-size out"));
    }
    let base = presets::run(&args.preset)?;
    let config = run_config::layered(base, None, &args.set)?;
    let mut model = config.model;
    let given = tokenizer.as_ref().map(Tokenizer::vocab_size);
    model.vocab_size = args.vocab_size.or(given).or(model.vocab_size);
    if model.vocab_size.is_none() {
        return Err(no_vocabulary(&args.preset));
    }
    let config = TransformerConfig::try_from(model)?;
    let work = InferenceWork::evaluation(WeightFormat::F32, 0, 0);
    let guard = args.memory.guard(backend);
    guard.check_inference("making the model", &[(&config, work)], &[])?;
    let folder = NewFolder::for_model(&args.out, args.force)?;
    backend.run(New {
        config: &config,
        tokenizer: tokenizer.as_ref(),
        seed: args.seed,
        folder: folder.path(),
    })??;
    folder.finish()?;
    let parameters = HumanCount(count::parameters(&config).total as u64);
    print(&format!(
        "{}: {parameters} parameters\n",
        args.out.display()
    ))
}

/// Opens a tokenizer.
fn open_tokenizer(choice: &TokenizerChoice) -> Result<Tokenizer, CliError> {
    match choice {
        TokenizerChoice::Named(TokenizerKind::Char) => Err(CliError::new(
            "char has no fixed vocabulary: it has one token per character of a corpus",
        )
        .hint("give another tokenizer, such as byte")),
        choice => Ok(Tokenizer::from_choice(choice)?),
    }
}

/// The error for a preset whose vocabulary is not given.
fn no_vocabulary(preset: &str) -> CliError {
    let message = format!("the preset `{preset}` takes its vocabulary from a dataset");
    CliError::usage(message).hint("set the vocabulary size with --vocab-size N or --tokenizer PATH")
}

struct New<'a> {
    config: &'a TransformerConfig,
    tokenizer: Option<&'a Tokenizer>,
    seed: u64,
    folder: &'a Path,
}

impl Job for New<'_> {
    type Output = Result<(), CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let decoder = self.config.init::<B::InnerBackend>(self.seed, &device);
        let description = Description {
            model: self.config.raw(),
            tokenizer: self.tokenizer.map(Tokenizer::spec),
            chat_template: None,
            documents: Packing::Stream,
            seq_len: None,
            adapter: None,
        };
        Ok(write_untrained(
            self.folder,
            &decoder,
            &description,
            self.tokenizer,
        )?)
    }
}
