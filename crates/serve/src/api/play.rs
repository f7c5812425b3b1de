//! `POST /api/play`: streams text for the page, token by token with alternatives.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use axum::response::Response;
use axum::response::sse::Event;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::App;
use super::answer_stream::{AnswerStream, json_event, streamed};
use super::answers::{AnswerEvent, FinishReason, Token};
use super::body::{FieldGroup, KnownFields, Object};
use super::bounds::Kept;
use super::conversation::{Conversation, EncodedPrompt, Message, TemplateOptions};
use super::delivery::Usage;
use super::error::{ApiError, ErrorBody};
use super::fields;
use super::generation::Generation;
use super::model_request::ModelRequest;
use super::prompt::{Prompt, TooLong};
use super::settings::Settings;
use crate::limits::MOST_ALTERNATIVES;
use crate::model::{ServedModel, Task};

/// The default of `top_logprobs`.
const ALTERNATIVES: usize = 5;

/// The fields beside [`Settings`]: a prompt or messages.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Play {
    /// The name or an alias of the model.
    model: String,
    /// The text to continue.
    prompt: Option<String>,
    /// The conversation to answer, instead of a text.
    messages: Option<Vec<Object<Message>>>,
    /// The answer's tokens so far.
    continued: Option<Vec<u32>>,
    /// The number of alternatives to each token.
    #[schemars(range(min = 0, max = MOST_ALTERNATIVES), extend("default" = ALTERNATIVES))]
    top_logprobs: Option<usize>,
}

/// The content of an event.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum PlayEvent {
    Begin {
        prompt_tokens: usize,
    },
    Token {
        id: u32,
        text: String,
        logprob: Option<f32>,
        top: Vec<Alternative>,
    },
    /// Text that was held back as a possible beginning of a stop string.
    Rest {
        text: String,
    },
    End {
        finish: FinishReason,
        completion_tokens: usize,
        seconds: f64,
    },
    Error(ErrorBody),
}

/// An alternative to a token.
#[derive(Clone, Debug, Serialize)]
struct Alternative {
    id: u32,
    text: String,
    logprob: f32,
}

impl FieldGroup for Play {}

static FIELDS: LazyLock<KnownFields<(Play, Settings)>> =
    LazyLock::new(|| KnownFields::new(&fields::NONE));

/// Handles the request.
pub(crate) async fn answer(mut request: ModelRequest) -> Result<Response, ApiError> {
    let (fields, settings) = request.read(&FIELDS).await?;
    let model = request.model(&fields.model, Task::Continuation)?;
    let alternatives = fields.top_logprobs.unwrap_or(ALTERNATIVES);
    if alternatives > MOST_ALTERNATIVES {
        let rule = format!("must be at most {MOST_ALTERNATIVES}");
        return Err(ApiError::field("top_logprobs", rule));
    }
    let mut encoded = match (fields.prompt, fields.messages) {
        (Some(text), None) => EncodedPrompt::text(tokens(text, &model, &request.app).await?),
        (None, Some(messages)) => {
            let conversation = Conversation {
                messages,
                tools: None,
                template: TemplateOptions::default(),
            };
            conversation.encode(&request, &model).await?
        }
        _ => {
            let rule = "either this field or messages must be given";
            return Err(ApiError::field("prompt", rule));
        }
    };
    encoded.prompt.extend(fields.continued.unwrap_or_default());
    let (app, deadline) = (request.app.clone(), request.deadline);
    // Lower the page's `max_tokens` to the available room instead of rejecting it.
    let room = model.room(encoded.prompt.len());
    let most = room.max(1).min(app.limits().tokens);
    let generation = Generation {
        max_tokens: settings.max_tokens()?.map(|wanted| wanted.min(most)),
        top_logprobs: Some(alternatives),
        ..Generation::new(&settings)
    };
    let answer_request = generation.request(&app, &model, encoded, 1).await?;
    let kept = Kept {
        streams: true,
        ..Kept::default()
    };
    let answers = request.begin(&model, vec![answer_request], kept).await?;
    let writer = Writer {
        model,
        start: Instant::now(),
        finish: FinishReason::Stop,
    };
    Ok(streamed(deadline, answers, writer))
}

/// Encodes a text.
async fn tokens(text: String, model: &Arc<ServedModel>, app: &App) -> Result<Vec<u32>, ApiError> {
    let prompt = Prompt::Text(text);
    let texts = prompt
        .tokens("prompt", model, app, TooLong::Refused)
        .await?;
    Ok(texts.concat())
}

/// Formats the answer.
struct Writer {
    model: Arc<ServedModel>,
    start: Instant,
    finish: FinishReason,
}

impl AnswerStream for Writer {
    type Item = Event;

    fn begin(&mut self, usage: Usage) -> Vec<Event> {
        let prompt_tokens = usage.prompt_tokens;
        vec![json_event(&PlayEvent::Begin { prompt_tokens })]
    }

    fn next(&mut self, _: usize, event: AnswerEvent) -> Vec<Event> {
        self.finish = event.finish.unwrap_or(self.finish);
        match event.token {
            Some(token) => vec![json_event(&token_event(token, event.text, &self.model))],
            None if event.text.is_empty() => Vec::new(),
            None => vec![json_event(&PlayEvent::Rest { text: event.text })],
        }
    }

    fn end(&mut self, usage: Usage) -> Vec<Event> {
        vec![json_event(&PlayEvent::End {
            finish: self.finish,
            completion_tokens: usage.completion_tokens,
            seconds: self.start.elapsed().as_secs_f64(),
        })]
    }

    fn failure(self, error: ApiError) -> Event {
        json_event(&PlayEvent::Error(error.body()))
    }
}

fn token_event(token: Token, text: String, model: &ServedModel) -> PlayEvent {
    let alternative = |(id, logprob)| Alternative {
        id,
        text: String::from_utf8_lossy(&model.bytes(id)).into_owned(),
        logprob,
    };
    PlayEvent::Token {
        id: token.chosen.id,
        text,
        logprob: token.chosen.logprob,
        top: token
            .chosen
            .alternatives
            .into_iter()
            .map(alternative)
            .collect(),
    }
}
