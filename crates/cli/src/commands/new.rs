//! `emberlm new`: creates a model with initial weights.

mod stacks;

use std::path::Path;

use burn::tensor::Device;
use emberlm_data::Packing;
use emberlm_kernels::TrainingBackend;
use emberlm_model::{DecoderConfig, WeightFormat, count};
use emberlm_tokenizer::{Tokenizer, TokenizerChoice, TokenizerKind};
use emberlm_trainer::checkpoint::{Description, write_untrained};
use emberlm_trainer::fit::InferenceWork;
use indicatif::HumanCount;

use crate::args::NewArgs;
use crate::backend::Job;
use crate::error::CliError;
use crate::new_folder::NewFolder;
use crate::output::print;
use emberlm_trainer::{presets, run_config};
use stacks::{NewStacks, StackModel};

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
    if let Some(model) = StackModel::of(&args, tokenizer.as_ref())? {
        let work = InferenceWork::encoding(0, 0);
        let guard = args.memory.guard(backend);
        guard.check_inference("making the model", &[(model.config(), work)], &[])?;
        let folder = NewFolder::for_model(&args.out, args.force)?;
        backend.run(NewStacks {
            model: &model,
            tokenizer: tokenizer.as_ref(),
            seed: args.seed,
            folder: folder.path(),
        })??;
        folder.finish()?;
        return report(&args, u64::try_from(model.parameters()).unwrap_or(u64::MAX));
    }
    let base = presets::run(&args.preset)?;
    let config = run_config::layered(base, None, &args.set)?;
    let mut model = config.model.decoder()?.clone();
    let given = tokenizer.as_ref().map(Tokenizer::vocab_size);
    model.vocab_size = args.vocab_size.or(given).or(model.vocab_size);
    if model.vocab_size.is_none() {
        return Err(no_vocabulary(&args.preset));
    }
    let config = DecoderConfig::try_from(model)?;
    let work = InferenceWork::evaluation(WeightFormat::F32, 0, 0);
    let guard = args.memory.guard(backend);
    guard.check_inference("making the model", &[((&config).into(), work)], &[])?;
    let folder = NewFolder::for_model(&args.out, args.force)?;
    backend.run(New {
        config: &config,
        tokenizer: tokenizer.as_ref(),
        seed: args.seed,
        folder: folder.path(),
    })??;
    folder.finish()?;
    report(&args, count::parameters(&config).total as u64)
}

/// Prints the model's folder and its number of parameters.
fn report(args: &NewArgs, parameters: u64) -> Result<(), CliError> {
    let (path, parameters) = (args.out.display(), HumanCount(parameters));
    print(&format!("{path}: {parameters} parameters\n"))
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
    config: &'a DecoderConfig,
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
