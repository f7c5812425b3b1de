//! `emberlm new`: creates a model with initial weights.

use std::path::Path;

use burn::tensor::Device;
use emberlm_data::Packing;
use emberlm_kernels::TrainingBackend;
use emberlm_model::{DecoderConfig, WeightFormat, count};
use emberlm_trainer::checkpoint::{Description, write_untrained};
use emberlm_trainer::fit::InferenceWork;
use indicatif::HumanCount;

use crate::args::NewArgs;
use crate::backend::Job;
use crate::error::CliError;
use crate::new_folder::NewFolder;
use crate::output::print;
use emberlm_trainer::{presets, run_config};

/// Writes the model.
pub fn run(args: NewArgs) -> Result<(), CliError> {
    let backend = args.backend.choose()?;
    let base = presets::run(&args.preset)?;
    let config = run_config::layered(base, None, &args.set)?;
    let mut model = config.model.decoder()?.clone();
    model.vocab_size = args.vocab_size.or(model.vocab_size);
    if model.vocab_size.is_none() {
        let message = format!(
            "the preset `{}` takes its vocabulary from a dataset",
            args.preset
        );
        return Err(CliError::usage(message).hint("give its size: --vocab-size N"));
    }
    let config = DecoderConfig::try_from(model)?;
    let work = InferenceWork::evaluation(WeightFormat::F32, 0, 0);
    let guard = args.memory.guard(backend);
    guard.check_inference("making the model", &[(&config, work)], &[])?;
    let folder = NewFolder::for_model(&args.out, args.force)?;
    backend.run(New {
        config: &config,
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

struct New<'a> {
    config: &'a DecoderConfig,
    seed: u64,
    folder: &'a Path,
}

impl Job for New<'_> {
    type Output = Result<(), CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let decoder = self.config.init::<B::InnerBackend>(self.seed, &device);
        let description = Description {
            model: self.config.raw(),
            tokenizer: None,
            chat_template: None,
            documents: Packing::Stream,
            seq_len: None,
        };
        Ok(write_untrained(self.folder, &decoder, &description, None)?)
    }
}
