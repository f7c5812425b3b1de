//! Small encoders and encoder–decoders with initial weights, as Hugging Face directories.

use std::fs;
use std::path::Path;

use burn::tensor::Device;
use emberlm_kernels::TrainingBackend;
use emberlm_model::encoder::{EncoderHeadConfig, EncoderSettings};
use emberlm_model::encoder_decoder::EncoderDecoderSettings;
use emberlm_model::hugging_face::{ExportOptions, export};
use emberlm_model::{Activation, TransformerConfig};
use emberlm_tokenizer::{TOKENIZER_FILE, Tokenizer};
use serde_json::{Map, json};

use super::NewArgs;
use crate::backend::Job;
use crate::error::CliError;

/// The model of the preset that `args` names; `None` if it is a decoder's.
///
/// # Errors
/// An option does not apply to these presets, or the vocabulary is not given or too large.
pub fn of(
    args: &NewArgs,
    tokenizer: Option<&Tokenizer>,
) -> Result<Option<TransformerConfig>, CliError> {
    let Some(kind) = Kind::of(&args.preset) else {
        return Ok(None);
    };
    if !args.set.is_empty() {
        let message = format!(
            "--set is for decoders, and the preset `{}` is none",
            args.preset
        );
        return Err(CliError::usage(message).hint("leave --set out"));
    }
    let sizes = args
        .vocab_size
        .or_else(|| tokenizer.map(Tokenizer::vocab_size));
    let vocab_size = sizes.ok_or_else(|| super::no_vocabulary(&args.preset))?;
    Ok(Some(match kind {
        Kind::BertNano => TransformerConfig::try_from(EncoderSettings {
            head: Some(EncoderHeadConfig::masked_lm(Activation::Gelu)),
            ..EncoderSettings::nano(vocab_size)
        })?,
        Kind::T5Nano => TransformerConfig::try_from(EncoderDecoderSettings::nano(vocab_size))?,
    }))
}

/// A preset of a model that is no decoder.
#[derive(Clone, Copy)]
enum Kind {
    /// A BERT of 4 layers and width 128, with the head of a masked language model.
    BertNano,
    /// A T5 of 2 + 2 layers and width 128.
    T5Nano,
}

impl Kind {
    fn of(preset: &str) -> Option<Self> {
        match &preset.to_lowercase()[..] {
            "bert-nano" => Some(Self::BertNano),
            "t5-nano" => Some(Self::T5Nano),
            _ => None,
        }
    }
}

/// Writes a model with initial weights into a folder.
pub struct NewStacks<'a> {
    pub config: &'a TransformerConfig,
    pub tokenizer: Option<&'a Tokenizer>,
    pub seed: u64,
    pub folder: &'a Path,
}

impl Job for NewStacks<'_> {
    type Output = Result<(), CliError>;

    fn run<B: TrainingBackend>(self, device: Device<B>) -> Self::Output {
        let mut fields = Map::new();
        if let Some(end) = self.tokenizer.and_then(Tokenizer::end_of_text) {
            fields.insert("eos_token_id".to_owned(), json!(end));
        }
        let options = ExportOptions {
            fields,
            ..ExportOptions::default()
        };
        let model = self.config.init::<B::InnerBackend>(self.seed, &device);
        export(&model, self.folder, &options)?;
        if let Some(tokenizer) = self.tokenizer {
            let file = self.folder.join(TOKENIZER_FILE);
            fs::write(&file, tokenizer.to_tokenizer_json())
                .map_err(CliError::io("write", &file))?;
        }
        Ok(())
    }
}
