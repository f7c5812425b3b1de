//! A model of any kind whose weights have not been read.

use std::path::Path;

use emberlm_checkpoint::{EncoderModel, Model, ModelKind};
use emberlm_model::TransformerConfig;
use emberlm_tokenizer::Tokenizer;

use crate::adapter_arg::AdapterArg;
use crate::error::CliError;
use crate::model;

/// A model of any kind whose weights have not been read.
pub enum OpenedModel {
    Decoder(Box<Model>),
    Encoder(Box<EncoderModel>),
    EncoderDecoder(Box<Model>),
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
        let model = adapter.open(path)?;
        Ok(match model.kind() {
            ModelKind::Decoder => Self::Decoder(Box::new(model)),
            ModelKind::Encoder => Self::Encoder(Box::new(model::encoder(model, path)?)),
            ModelKind::EncoderDecoder => Self::EncoderDecoder(Box::new(model)),
        })
    }

    /// The model with its files.
    pub fn model(&self) -> &Model {
        match self {
            Self::Decoder(model) | Self::EncoderDecoder(model) => model,
            Self::Encoder(model) => model.model(),
        }
    }

    /// The model's configuration.
    pub fn config(&self) -> &TransformerConfig {
        self.model().config()
    }

    /// The tokenizer, if the model has one.
    ///
    /// # Errors
    /// The tokenizer cannot be read.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, CliError> {
        Ok(self.model().tokenizer()?)
    }

    /// Checks that the token ids are below the vocabulary size, and not too many.
    ///
    /// # Errors
    /// There are none or too many, or one is not below the vocabulary size.
    pub fn check_tokens(&self, tokens: &[u32]) -> Result<(), CliError> {
        Ok(self.config().check_tokens(tokens)?)
    }
}
