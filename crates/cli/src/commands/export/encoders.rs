//! `emberlm export` of encoders and encoder–decoders: their directories already have the format, so that only the type of the
//! weights and the size of files can change.

use std::path::Path;

use burn::tensor::Device;
use emberlm_checkpoint::{Model, SourceFiles};
use emberlm_kernels::{TrainingBackend, memory};
use emberlm_model::WeightFormat;
use emberlm_model::hugging_face::{ExportOptions, Exported, export};
use emberlm_model::weights::Element;
use emberlm_tokenizer::TOKENIZER_CONFIG_FILE;

use super::ExportArgs;
use crate::backend::Job;
use crate::error::CliError;
use crate::new_folder::NewFolder;
use crate::opened_model::OpenedModel;
use crate::output::print;

/// Writes the model and prints a summary.
pub fn run(args: &ExportArgs, opened: &OpenedModel) -> Result<(), CliError> {
    if let Some(format) = args.weights.filter(|format| *format != WeightFormat::F32) {
        let message = format!("--weights {} is supported for decoders only", format.name());
        return Err(CliError::new(message).hint("leave --weights out"));
    }
    let backend = args.backend.choose()?;
    let model = opened.model();
    let folder = NewFolder::for_model(&args.out, args.force)?;
    let fields = super::fields(model, None)?;
    let path = model.path();
    let options = ExportOptions {
        element: args.dtype.unwrap_or(Element::F32),
        shard_bytes: super::shard_bytes(args),
        fields,
        family: None,
    };
    super::keep_files(path, folder.path())?;
    SourceFiles::of_hugging_face(path)?.export(folder.path())?;
    if let Some(tokenizer) = model.tokenizer()?
        && !folder.path().join(TOKENIZER_CONFIG_FILE).exists()
    {
        let longest = model.config().longest();
        let config = tokenizer.to_tokenizer_config_json(longest);
        super::write(folder.path(), TOKENIZER_CONFIG_FILE, config)?;
    }
    let exported = backend.run(Export {
        model,
        folder: folder.path(),
        options: &options,
    })??;
    let files = exported.files.len();
    folder.finish()?;
    let types = options.element.name();
    print(&super::summary(&args.out, &exported, files, types))
}

struct Export<'a> {
    model: &'a Model,
    folder: &'a Path,
    options: &'a ExportOptions,
}

impl Job for Export<'_> {
    type Output = Result<Exported, CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let Self {
            model,
            folder,
            options,
        } = self;
        // Writing copies each tensor. Without returning freed memory, the copies would add up.
        memory::returning_freed(|| {
            let loaded = model.decoder_in::<B::InnerBackend>(WeightFormat::F32, &device)?;
            Ok(export(&loaded, folder, options)?)
        })
    }
}
