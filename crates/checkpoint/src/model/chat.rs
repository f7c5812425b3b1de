//! Conversations of a [`Model`]: its chat template, and the encoder of prompts.

use std::path::Path;

use emberlm_model::ModelKind;
use emberlm_tokenizer::Tokenizer;
use emberlm_tokenizer::chat::{ChatEncoder, ChatTemplate, ChatTemplateSpec, Stops};

use super::adapter_source::AdapterSource;
use super::{Model, Source};
use crate::checkpoint::Checkpoint;
use crate::error::ModelError;

impl Model {
    /// Builds the encoder of conversations with the template `requested` (chatml, llama3 or a path), by default with
    /// the model's template. Returns `None` if the model has no template.
    ///
    /// The ids of prompts are those that the model was trained with. A run on its own template has the end-of-text
    /// token before every conversation, unless the template itself begins with a special token. A published model, and a
    /// run with its template, has the ids of `transformers`.
    pub fn chat(
        &self,
        tokenizer: &Tokenizer,
        requested: Option<&str>,
    ) -> Result<Option<ChatEncoder>, ModelError> {
        let template = match requested {
            Some(requested) => Some(self.requested(requested.parse()?)?),
            None => self.chat_template()?,
        };
        Ok(template.map(|template| self.encoder(template, tokenizer)))
    }

    /// [`Model::chat`] with the template named `tool_use`, for conversations with tools. Returns `None` if there is
    /// no such template.
    pub fn tool_chat(
        &self,
        tokenizer: &Tokenizer,
        requested: Option<&str>,
    ) -> Result<Option<ChatEncoder>, ModelError> {
        let template = match requested {
            Some(requested) => ChatTemplate::for_tools(requested)?
                .map(|template| self.requested(template))
                .transpose()?,
            None => {
                let own = self.chat_template()?;
                own.and_then(ChatTemplate::into_tool_use)
            }
        };
        Ok(template.map(|template| self.encoder(template, tokenizer)))
    }

    /// A template that replaces the model's own. Its conversations begin like those that the model was trained with: of a
    /// published model and sources with nothing, of a run of emberlm like its documents.
    fn requested(&self, template: ChatTemplate) -> Result<ChatTemplate, ModelError> {
        if self.kind() == ModelKind::EncoderDecoder {
            return Ok(template);
        }
        let own = self.chat_template()?;
        let is_of_run = matches!(self.source, Source::Checkpoint { .. });
        Ok(match own {
            Some(own) if own.source() == template.source() || own.is_published() => {
                template.starting_as(&own)
            }
            None if !is_of_run => template.published(),
            _ => template.for_run(),
        })
    }

    /// The specification of the chat template that emberlm trained the model with, if any.
    pub fn chat_template_spec(&self) -> Option<&ChatTemplateSpec> {
        match &self.source {
            Source::Checkpoint { description, .. } => description.chat_template.as_ref(),
            Source::HuggingFace { .. } => None,
        }
    }

    /// The model's chat template: that of its adapter, of its training dataset, or of the published model.
    ///
    /// # Errors
    /// The template cannot be read.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, ModelError> {
        if let Some(adapter) = &self.adapter
            && let Some(template) = adapter.chat_template()?
        {
            return Ok(Some(template));
        }
        match &self.source {
            Source::Checkpoint { checkpoint, .. } => of_checkpoint(checkpoint),
            Source::HuggingFace { files, .. } => {
                let template = files.chat_template()?;
                let with_tools = files.tool_template()?;
                Ok(template.map(|template| template.with_tool_use(with_tools)))
            }
        }
    }

    /// True if the main chat template is that of the published model, so that its additional templates are for this
    /// model, too.
    ///
    /// # Errors
    /// A template cannot be read.
    pub fn keeps_templates(&self) -> Result<bool, ModelError> {
        let published = match &self.source {
            Source::Checkpoint { checkpoint, .. } => ChatTemplate::beside_model(&checkpoint.path)?,
            Source::HuggingFace { files, .. } => files.chat_template()?,
        };
        let own = self.chat_template()?;
        let source =
            |template: Option<ChatTemplate>| template.map(|template| template.source().to_owned());
        Ok(source(published) == source(own))
    }

    fn encoder(&self, template: ChatTemplate, tokenizer: &Tokenizer) -> ChatEncoder {
        let encoder = ChatEncoder::new(template, tokenizer);
        match self.kind() {
            ModelKind::EncoderDecoder => encoder,
            ModelKind::Decoder | ModelKind::Encoder => encoder.with_document_start(),
        }
    }

    /// The strings and tokens that end an answer: [`ChatEncoder::stops`] and [`Model::stop_tokens`], sorted.
    pub fn chat_stops(&self, tokenizer: &Tokenizer, encoder: &ChatEncoder) -> Stops {
        let mut stops = encoder.stops();
        stops.tokens.extend(self.stop_tokens(Some(tokenizer)));
        let vocab_size = self.config.vocab_size();
        stops.tokens.retain(|&id| (id as usize) < vocab_size);
        stops.tokens.sort_unstable();
        stops.tokens.dedup();
        stops
    }
}

impl AdapterSource {
    /// The chat template that the adapter was trained with, if it is recorded.
    fn chat_template(&self) -> Result<Option<ChatTemplate>, ModelError> {
        match self {
            Self::Peft(adapter) => beside(adapter.path()),
            Self::Checkpoint(checkpoint, _) => of_checkpoint(checkpoint),
        }
    }
}

/// The chat template of a run: that of its dataset, or of the published model that it was fine-tuned from.
fn of_checkpoint(checkpoint: &Checkpoint) -> Result<Option<ChatTemplate>, ModelError> {
    let description = checkpoint.description.as_ref();
    let spec = description.and_then(|description| description.chat_template.as_ref());
    match spec {
        Some(spec) => Ok(Some(ChatTemplate::try_from(spec)?)),
        None => beside(&checkpoint.path),
    }
}

/// The chat templates of the published model whose files are in a folder.
fn beside(folder: &Path) -> Result<Option<ChatTemplate>, ModelError> {
    let Some(template) = ChatTemplate::beside_model(folder)? else {
        return Ok(None);
    };
    let with_tools = ChatTemplate::for_tools_beside(folder)?;
    Ok(Some(template.with_tool_use(with_tools)))
}
