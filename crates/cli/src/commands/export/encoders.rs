//! `emberlm export` of encoders and encoder–decoders: their directories already have the format, so that only the type of the
//! weights and the size of files can change.

use std::path::Path;

use burn::tensor::Device;
use emberlm_checkpoint::SourceFiles;
use emberlm_kernels::{TrainingBackend, memory};
use emberlm_model::WeightFormat;
use emberlm_model::hugging_face::{ExportOptions, Exported, encoder, encoder_decoder};
use emberlm_model::weights::Element;
use emberlm_tokenizer::TOKENIZER_CONFIG_FILE;

use super::ExportArgs;
use crate::backend::Job;
use crate::error::CliError;
use crate::new_folder::NewFolder;
use crate::opened_model::OpenedModel;
use crate::output::print;

/// Writes the model and prints a summary.
pub fn run(args: &ExportArgs) -> Result<(), CliError> {
    if let Some(format) = args.weights.filter(|format| *format != WeightFormat::F32) {
        let message = format!("--weights {} is supported for decoders only", format.name());
        return Err(CliError::new(message).hint("leave --weights out"));
    }
    let backend = args.backend.choose()?;
    let model = OpenedModel::open(&args.model)?;
    let folder = NewFolder::for_model(&args.out, args.force)?;
    let (fields, path) = match &model {
        OpenedModel::Decoder(_) => return Err(CliError::new("the model is a decoder")),
        OpenedModel::Encoder(model) => (model.hugging_face().fields(), model.hugging_face().path()),
        OpenedModel::EncoderDecoder(model) => {
            (model.hugging_face().fields(), model.hugging_face().path())
        }
    };
    let mut fields = fields.clone();
    // The exporter writes `dtype` instead.
    fields.retain(|name, _| name != "torch_dtype");
    let options = ExportOptions {
        element: args.dtype.unwrap_or(Element::F32),
        shard_bytes: super::shard_bytes(args),
        fields,
    };
    super::keep_files(path, folder.path())?;
    SourceFiles::of_hugging_face(path)?.export(folder.path())?;
    if let Some(tokenizer) = model.tokenizer()?
        && !folder.path().join(TOKENIZER_CONFIG_FILE).exists()
    {
        let longest = match &model {
            OpenedModel::Encoder(model) => Some(model.config().seq_len()),
            OpenedModel::Decoder(_) | OpenedModel::EncoderDecoder(_) => None,
        };
        let config = tokenizer.to_tokenizer_config_json(longest);
        super::write(folder.path(), TOKENIZER_CONFIG_FILE, config)?;
    }
    let exported = backend.run(Export {
        model: &model,
        folder: folder.path(),
        options: &options,
    })??;
    let files = exported.files.len();
    folder.finish()?;
    let types = options.element.name();
    print(&super::summary(&args.out, &exported, files, types))
}

struct Export<'a> {
    model: &'a OpenedModel,
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
        memory::returning_freed(|| match model {
            OpenedModel::Decoder(_) => Err(CliError::new("the model is a decoder")),
            OpenedModel::Encoder(model) => {
                let directory = model.hugging_face();
                let encoder = directory.encoder::<B::InnerBackend>(&device)?;
                let model_type = directory.model_type();
                Ok(encoder::export(&encoder, model_type, folder, options)?)
            }
            OpenedModel::EncoderDecoder(model) => {
                let directory = model.hugging_face();
                let loaded = directory.model::<B::InnerBackend>(&device)?;
                let model_type = directory.model_type();
                Ok(encoder_decoder::export(
                    &loaded, model_type, folder, options,
                )?)
            }
        })
    }
}
