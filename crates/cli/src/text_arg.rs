//! The text that a model's inside is looked at for, as text or token ids.

use std::path::Path;

use clap::Args;
use emberlm_tokenizer::SequenceEncoder;

use crate::error::CliError;
use crate::model::needed;
use crate::opened_model::OpenedModel;
use crate::values;

/// A text or its tokens.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct TextArg {
    /// The text
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// The token ids, such as 1,2,3
    #[arg(long, value_name = "IDS", value_delimiter = ',', value_parser = values::token_id)]
    pub tokens: Option<Vec<u32>>,
}

impl TextArg {
    /// The tokens, which the model can process.
    ///
    /// # Errors
    /// The model has no tokenizer for the text, is an encoder–decoder, or cannot process the tokens.
    pub fn tokens(&self, model: &OpenedModel, path: &Path) -> Result<Vec<u32>, CliError> {
        if let OpenedModel::EncoderDecoder(_) = model {
            let message = format!(
                "{} is an encoder–decoder, and only decoders and encoders have named activations",
                path.display()
            );
            return Err(CliError::new(message)
                .hint("its attention weights are shown by emberlm attention MODEL"));
        }
        let tokens = match &self.prompt {
            Some(text) => encoded(text, model, path)?,
            None => self.tokens.clone().unwrap_or_default(),
        };
        model.check_tokens(&tokens)?;
        Ok(tokens)
    }
}

/// The tokens of a prompt, or of the text that an encoder reads.
///
/// # Errors
/// The model has no tokenizer, or it cannot encode the text.
pub fn encoded(text: &str, model: &OpenedModel, path: &Path) -> Result<Vec<u32>, CliError> {
    let tokenizer = model.tokenizer()?;
    let tokenizer = needed(tokenizer.as_ref(), path)?;
    match model {
        OpenedModel::Decoder(_) => Ok(tokenizer.encode_prompt(text)?),
        OpenedModel::Encoder(_) | OpenedModel::EncoderDecoder(_) => {
            let encoder = SequenceEncoder::new(tokenizer, usize::MAX);
            Ok(encoder.encode(text)?.ids)
        }
    }
}
