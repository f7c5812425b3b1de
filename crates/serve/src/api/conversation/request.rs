//! The request for answers to a conversation that the requests of every API are translated to.

use std::sync::Arc;

use super::{CallChoice, Calling, Conversation, Message, TemplateOptions, Tool};
use crate::api::answer_parts::AnswerForm;
use crate::api::answers::AnswerRequest;
use crate::api::body::Object;
use crate::api::error::ApiError;
use crate::api::generation::Generation;
use crate::api::model_request::ModelRequest;
use crate::api::settings::{Settings, TextForm};
use crate::model::ServedModel;

/// A conversation to answer.
pub(crate) struct ConversationRequest<'a> {
    pub messages: Vec<Object<Message>>,
    /// The functions that the answer may call.
    pub tools: Vec<Object<Tool>>,
    /// Those that it calls.
    pub choice: CallChoice<'a>,
    /// True if the answer may have several calls.
    pub parallel: bool,
    pub template: TemplateOptions,
    pub settings: &'a Settings,
    /// The maximum number of new tokens, from an API's own field. Takes precedence over the settings.
    pub max_tokens: Option<u32>,
    /// The number of alternatives, if log-probabilities are requested.
    pub top_logprobs: Option<usize>,
    /// The form of the text, from an API's own field.
    pub form: Option<TextForm>,
    /// The number of answers.
    pub samples: usize,
}

impl ConversationRequest<'_> {
    /// Encodes the conversation. Returns the engine's request, and the parts of the answers.
    ///
    /// # Errors
    /// See [`Calling::new`], [`Conversation::encode`] and [`Generation::request`].
    pub async fn prepare(
        self,
        request: &ModelRequest,
        model: &Arc<ServedModel>,
    ) -> Result<(AnswerRequest, AnswerForm), ApiError> {
        let tools = Arc::new(self.tools);
        let calling = Calling::new(request, model, &tools, self.choice, self.parallel).await?;
        let conversation = Conversation {
            messages: self.messages,
            tools: calling.as_ref().map(|_| Arc::clone(&tools)),
            template: self.template,
        };
        let encoded = conversation.encode(request, model).await?;
        let form = AnswerForm {
            reasoning: encoded.reasoning,
            tools: calling.as_ref().map(|calling| calling.format.clone()),
        };
        let generation = Generation {
            max_tokens: self.max_tokens.map(|tokens| tokens as usize),
            top_logprobs: self.top_logprobs,
            form: self.form,
            calling: calling.as_ref(),
            ..Generation::new(self.settings)
        };
        let samples = self.samples;
        let answer_request = generation.request(&request.app, model, encoded, samples);
        Ok((answer_request.await?, form))
    }
}
