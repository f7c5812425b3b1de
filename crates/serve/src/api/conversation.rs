//! Conversations, as used by chat completions, responses and the page.
//!
//! | module | contents |
//! |---|---|
//! | this module | [`Conversation`]: encoded with the model's template |
//! | `callable` | the functions that an answer may call, with simplified schemas |
//! | `messages` | [`Message`] |
//! | `request` | [`ConversationRequest`]: the request that every API's is translated to |
//! | `support` | functions and calls in the form that the template supports |
//! | `template` | [`TemplateOptions`]: variables of the template, and the end of the prompt |
//! | `tools` | [`Tool`], [`Calling`]: the functions that an answer may call |

mod callable;
mod messages;
mod request;
mod support;
mod template;
mod tools;

use std::sync::Arc;

use emberlm_tokenizer::chat::ChatError;
use serde::Serialize;
use serde_json::{Map, Value};

use super::body::Object;
use super::bounds::of_encoding;
use super::error::ApiError;
use super::model_request::ModelRequest;
use crate::jobs::Interest;
use crate::memory::Memory;
use crate::model::ServedModel;
use crate::reasoning::Reasoning;
use messages::DeprecatedCalls;
pub(crate) use messages::{Message, ToolKind};
pub(crate) use request::ConversationRequest;
use support::{Messages, TemplateInput, for_template};
pub(crate) use template::{ReasoningControls, TemplateOptions};
pub(crate) use tools::{
    CallChoice, Calling, NamedTool, NamesFunction, Tool, ToolChoice, ToolFunction,
};

/// An encoded prompt, and stop conditions of its answer in addition to the model's.
#[derive(Default)]
pub(crate) struct EncodedPrompt {
    pub prompt: Vec<u32>,
    pub stop_tokens: Vec<u32>,
    pub stop_strings: Vec<String>,
    /// The tags of the answer's reasoning. `None` if its model does not reason.
    pub reasoning: Option<Reasoning>,
}

impl EncodedPrompt {
    /// A prompt that is not a conversation.
    pub fn text(prompt: Vec<u32>) -> Self {
        Self {
            prompt,
            ..Self::default()
        }
    }
}

/// The error of a conversation with a model without a chat template.
fn without_template(model: &ServedModel) -> ApiError {
    let rule = format!(
        "{} has no chat template: use /v1/completions, or serve it with --chat-template",
        model.name
    );
    ApiError::field("model", rule)
}

/// The variables of a chat template.
#[derive(Serialize)]
struct TemplateVariables<'a> {
    messages: Messages<'a>,
    /// Templates test whether `tools` is defined.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tools: &'a [Object<Tool>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    documents: &'a [Map<String, Value>],
    /// Further variables.
    #[serde(skip_serializing_if = "Map::is_empty")]
    chat_template_kwargs: Map<String, Value>,
}

/// A conversation, and the functions that the answer may call.
pub(crate) struct Conversation {
    pub messages: Vec<Object<Message>>,
    pub tools: Option<Arc<Vec<Object<Tool>>>>,
    pub template: TemplateOptions,
}

impl Conversation {
    /// Encodes the conversation with the model's chat template.
    ///
    /// # Errors
    /// The model has no template, or the template rejects the conversation. Also, there is no memory, or too many requests
    /// wait.
    pub async fn encode(
        self,
        request: &ModelRequest,
        model: &Arc<ServedModel>,
    ) -> Result<EncodedPrompt, ApiError> {
        for (index, message) in self.messages.iter().enumerate() {
            message.0.check(index)?;
        }
        if model.chat.is_none() {
            return Err(without_template(model));
        }
        let (model, memory) = (Arc::clone(model), request.app.memory().clone());
        let encode = move |_: &Interest| self.render(&model, &memory);
        request.app.jobs().run(request.body_len, encode).await?
    }

    /// Renders and encodes the conversation.
    fn render(mut self, model: &ServedModel, memory: &Memory) -> Result<EncodedPrompt, ApiError> {
        let unavailable = || ApiError::internal("the template could not be run");
        let end = self.template.end()?;
        let messages = self.messages.into_iter();
        let mut calls = DeprecatedCalls::default();
        let mut completed = |message: Message| calls.translated(message.completed());
        let messages: Vec<_> = messages.map(|it| it.map(&mut completed)).collect();
        let tools = self.tools.as_deref().map_or(&[][..], Vec::as_slice);
        let TemplateInput { messages, tools } = for_template(&messages, tools, model)?;
        // Without functions for the template, it is not the one for functions.
        let chat = model.chat_format(!tools.is_empty());
        let chat = chat.ok_or_else(unavailable)?;
        let template = chat.encoder.template();
        let chat_template_kwargs = self.template.variables(template)?;
        let record = serde_json::to_string(&TemplateVariables {
            messages,
            tools: &tools,
            documents: self.template.documents(),
            chat_template_kwargs,
        });
        let record = record.map_err(|error| ApiError::field("messages", error.to_string()))?;
        let _working = memory.reserve(of_encoding(record.len(), record.len()))?;
        let prompt = chat
            .encoder
            .prompt_to(&record, end)
            .map_err(|error| match error {
                ChatError::Unavailable { .. } => unavailable(),
                error => ApiError::field("messages", error.to_string()),
            })?;
        let reasoning = Reasoning::of_prompt(template.source(), &prompt, |id| model.bytes(id));
        Ok(EncodedPrompt {
            prompt,
            stop_tokens: chat.stops.tokens.clone(),
            stop_strings: chat.stops.strings.clone(),
            reasoning,
        })
    }
}
