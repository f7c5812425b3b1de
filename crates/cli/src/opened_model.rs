//! A model of any kind whose weights have not been read.

use std::path::Path;

use emberlm_checkpoint::{EncoderDecoderModel, EncoderModel, Model, ModelKind, kind_of};
use emberlm_model::TransformerConfig;
use emberlm_tokenizer::Tokenizer;

use crate::adapter_arg::AdapterArg;
use crate::error::CliError;
use crate::model;

/// A model of any kind whose weights have not been read.
pub enum OpenedModel {
    Decoder(Box<Model>),
    Encoder(Box<EncoderModel>),
    EncoderDecoder(Box<EncoderDecoderModel>),
}

impl OpenedModel {
    /// Opens the model at `path`, with warnings about newer checkpoints that are damaged.
    ///
    /// # Errors
    /// There is no model, or a file is damaged.
    pub fn open(path: &Path) -> Result<Self, CliError> {
        Self::open_with(path, &AdapterArg::default())
    }

    /// [`OpenedModel::open`], with the adapter, if one is given.
    ///
    /// # Errors
    /// Those of [`OpenedModel::open`]; also if the adapter is not for this model.
    pub fn open_with(path: &Path, adapter: &AdapterArg) -> Result<Self, CliError> {
        let kind = kind_of(path);
        adapter.check_kind(kind, path)?;
        Ok(match kind {
            ModelKind::Decoder => Self::Decoder(Box::new(adapter.open(path)?)),
            ModelKind::Encoder => Self::Encoder(Box::new(model::open_encoder(path)?)),
            ModelKind::EncoderDecoder => {
                Self::EncoderDecoder(Box::new(model::open_encoder_decoder(path)?))
            }
        })
    }

    /// The model's configuration.
    pub fn config(&self) -> &TransformerConfig {
        match self {
            Self::Decoder(model) => model.config(),
            Self::Encoder(model) => model.config(),
            Self::EncoderDecoder(model) => model.config(),
        }
    }

    /// The tokenizer, if the model has one.
    ///
    /// # Errors
    /// A decoder's tokenizer cannot be read.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, CliError> {
        Ok(match self {
            Self::Decoder(model) => model.tokenizer()?,
            Self::Encoder(model) => model.tokenizer().cloned(),
            Self::EncoderDecoder(model) => model.tokenizer().cloned(),
        })
    }

    /// Checks that the token ids are below the vocabulary size, and not too many.
    ///
    /// # Errors
    /// There are none or too many, or one is not below the vocabulary size.
    pub fn check_tokens(&self, tokens: &[u32]) -> Result<(), CliError> {
        Ok(self.config().check_tokens(tokens)?)
    }
}
