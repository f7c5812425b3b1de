//! Conversations, as used by chat completions, responses and the page.
//!
//! | module | contents |
//! |---|---|
//! | this module | [`encode_conversation`]: encodes a conversation with the model's template |
//! | `messages` | [`Message`] |
//! | `tools` | [`Tool`], [`Calling`]: the functions that an answer may call |

mod messages;
mod tools;

use std::sync::Arc;

use emberlm_tokenizer::chat::ChatError;
use serde::Serialize;

use super::App;
use super::body::Object;
use super::error::ApiError;
use super::memory::of_encoding;
use crate::jobs::Interest;
use crate::model::ServedModel;
pub(crate) use messages::{Message, ToolKind};
use tools::tool_format;
pub(crate) use tools::{Calling, NamedTool, NamesFunction, Tool, ToolChoice, ToolFunction};

/// An encoded prompt, and stop conditions of its answer in addition to the model's.
#[derive(Default)]
pub(crate) struct EncodedPrompt {
    pub prompt: Vec<u32>,
    pub stop_tokens: Vec<u32>,
    pub stop_strings: Vec<String>,
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

/// The variables of a chat template.
#[derive(Serialize)]
struct TemplateVariables<'a> {
    messages: &'a [Object<Message>],
    /// Templates test whether `tools` is defined.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tools: &'a [Object<Tool>],
}

/// Encodes a conversation with the model's chat template, together with the functions that the answer may
/// call.
///
/// # Errors
/// The model has no template, or the template rejects the conversation.
pub(crate) async fn encode_conversation(
    app: &App,
    model: &Arc<ServedModel>,
    messages: &[Object<Message>],
    tools: &[Object<Tool>],
) -> Result<EncodedPrompt, ApiError> {
    for (index, message) in messages.iter().enumerate() {
        message.0.check(index)?;
    }
    if model.chat.is_none() {
        let rule = format!(
            "{} has no chat template: use /v1/completions, or serve it with --chat-template",
            model.name
        );
        return Err(ApiError::field("model", rule));
    }
    if messages.iter().any(|message| message.0.calls_functions()) {
        tool_format(model, "messages")?;
    }
    let with_refusals: Vec<Object<Message>>;
    let messages = match messages.iter().any(|message| message.0.only_refuses()) {
        true => {
            let messages = messages.iter().cloned();
            with_refusals = messages.map(|it| it.map(Message::with_refusal)).collect();
            &with_refusals
        }
        false => messages,
    };
    let record = serde_json::to_string(&TemplateVariables { messages, tools });
    let record = record.map_err(|error| ApiError::field("messages", error.to_string()))?;
    let (model, with_tools) = (Arc::clone(model), !tools.is_empty());
    let (bytes, working) = (
        record.len(),
        app.memory()
            .reserve(of_encoding(record.len(), record.len()))?,
    );
    let write = move |_: &Interest| {
        let _working = working;
        let chat = model.chat_format(with_tools)?;
        Some(chat.encoder.prompt(&record).map(|prompt| EncodedPrompt {
            prompt,
            stop_tokens: chat.stops.tokens.clone(),
            stop_strings: chat.stops.strings.clone(),
        }))
    };
    let written = app.jobs().run(bytes, write).await?;
    let written = written.ok_or_else(|| ApiError::internal("the template could not be run"))?;
    written.map_err(|error| match error {
        ChatError::Unavailable { .. } => ApiError::internal("the template could not be run"),
        error => ApiError::field("messages", error.to_string()),
    })
}
