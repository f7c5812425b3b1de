//! Anthropic's Messages API: `POST /v1/messages` and `POST /v1/messages/count_tokens`.
//!
//! | file | content |
//! |---|---|
//! | `prompt` | the fields of a conversation; `content` has the blocks of its messages |
//! | `blocks` | the content blocks of an answer while they are generated |
//! | `message`, `events` | the body of an answer; its events |
//! | `error` | errors in Anthropic's form |

mod blocks;
mod content;
mod error;
mod events;
mod message;
mod prompt;

use std::sync::LazyLock;

use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer_stream::streamed;
use super::body::{FieldGroup, KnownFields};
use super::bounds::Kept;
use super::conversation::{Conversation, ConversationRequest};
use super::delivery::name;
use super::error::ApiError;
use super::fields;
use super::json::json;
use super::model_request::ModelRequest;
use super::settings::Settings;
use crate::model::Task;
use blocks::Blocks;
pub(crate) use error::{AnthropicError, in_its_form};
pub(crate) use events::STREAM_EVENTS;
use events::Writer;
pub(crate) use message::Message;
pub(crate) use prompt::Prompt;
use prompt::renamed;

/// The fields that control how an answer is sent.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Sending {
    /// True to send the answer while it is generated, as server-sent events.
    #[schemars(extend("default" = false))]
    stream: Option<bool>,
    /// Texts that end the answer and are not part of it.
    stop_sequences: Option<Vec<String>>,
}

/// The number of tokens of a conversation.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct TokenCount {
    input_tokens: usize,
}

impl FieldGroup for Sending {}

static MESSAGES: LazyLock<KnownFields<(Prompt, Sending, Settings)>> =
    LazyLock::new(|| KnownFields::new(&fields::MESSAGES));
static COUNT_TOKENS: LazyLock<KnownFields<(Prompt,)>> =
    LazyLock::new(|| KnownFields::new(&fields::COUNT_TOKENS));

/// Handles a request for an answer.
pub(crate) async fn messages(mut request: ModelRequest) -> Result<Response, ApiError> {
    let (mut prompt, sending, mut settings) = request.read(&MESSAGES).await?;
    let model = request.model(&prompt.model, Task::Generation)?;
    let stop_sequences = sending.stop_sequences.unwrap_or_default();
    settings.add_stops(stop_sequences.clone());
    let messages = prompt.messages()?;
    let conversation = ConversationRequest {
        messages: messages.messages,
        tools: prompt.tools(),
        choice: prompt.choice(),
        parallel: prompt.is_parallel(),
        template: messages.template,
        settings: &settings,
        max_tokens: None,
        top_logprobs: None,
        form: prompt.form()?,
        samples: 1,
    };
    let prepared = conversation.prepare(&request, &model).await;
    let (answer_request, form) = prepared.map_err(renamed)?;
    let streams = sending.stream == Some(true);
    let kept = Kept {
        streams,
        ..Kept::default()
    };
    let shows_reasoning = prompt.shows_reasoning();
    drop((prompt, settings));
    let (app, deadline) = (request.app.clone(), request.deadline);
    let answers = request.begin(&model, vec![answer_request], kept).await;
    let mut answers = answers.map_err(renamed)?;
    let mut writer = Writer {
        message: Message::new(name("msg").replacen('-', "_", 1), model.name.clone()),
        blocks: Blocks::new(form, shows_reasoning, stop_sequences),
    };
    if streams {
        return Ok(streamed(deadline, answers, writer));
    }
    while let Some(event) = answers.next().await {
        let (_, event) = event.map_err(renamed)?;
        writer.blocks.push(&event);
    }
    let Writer {
        mut message,
        blocks,
    } = writer;
    message.finish(blocks, answers.usage());
    json(&app, message, answers.into_reservation()).await
}

/// Handles a request for the number of tokens of a conversation.
pub(crate) async fn count_tokens(mut request: ModelRequest) -> Result<Response, ApiError> {
    let (mut prompt,) = request.read(&COUNT_TOKENS).await?;
    let model = request.model(&prompt.model, Task::Generation)?;
    let messages = prompt.messages()?;
    let conversation = Conversation {
        messages: messages.messages,
        tools: prompt.shown_tools(),
        template: messages.template,
    };
    let encoded = conversation.encode(&request, &model).await;
    let input_tokens = encoded.map_err(renamed)?.prompt.len();
    request.trace.add_prompt(input_tokens);
    let count = TokenCount { input_tokens };
    json(&request.app, count, request.account).await
}
