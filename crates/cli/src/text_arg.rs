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
        let tokenizer = || model.tokenizer();
        let tokens = match (&self.prompt, model) {
            (None, _) => self.tokens.clone().unwrap_or_default(),
            (Some(text), OpenedModel::Encoder(_)) => {
                let tokenizer = tokenizer()?;
                let tokenizer = needed(tokenizer.as_ref(), path)?;
                SequenceEncoder::new(tokenizer, usize::MAX)
                    .encode(text)?
                    .ids
            }
            (Some(text), OpenedModel::Decoder(_) | OpenedModel::EncoderDecoder(_)) => {
                needed(tokenizer()?.as_ref(), path)?.encode_prompt(text)?
            }
        };
        model.check_tokens(&tokens)?;
        Ok(tokens)
    }
}
