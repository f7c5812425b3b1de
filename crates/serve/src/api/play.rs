//! `POST /api/play`: streams text for the page, token by token with alternatives and with the parts of the answer.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use axum::response::Response;
use axum::response::sse::Event;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::App;
use super::answer_parts::{AnswerForm, AnswerPart, AnswerParts};
use super::answer_stream::{AnswerStream, json_event, streamed};
use super::answers::{AnswerEvent, FinishReason, Token};
use super::body::{FieldGroup, KnownFields, Object};
use super::bounds::Kept;
use super::conversation::{
    CallChoice, ConversationRequest, EncodedPrompt, Message, NamedTool, TemplateOptions, Tool,
    ToolChoice,
};
use super::delivery::Usage;
use super::error::{ApiError, ErrorBody};
use super::fields;
use super::generation::Generation;
use super::model_request::ModelRequest;
use super::prompt::{Prompt, TooLong};
use super::settings::Settings;
use crate::limits::{MOST_ALTERNATIVES, MOST_TOOLS};
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
    /// The answer's tokens so far. An encoder–decoder continues none.
    #[schemars(inner(range(max = u32::MAX)))]
    continued: Option<Vec<u32>>,
    /// The functions that an answer to `messages` may call. After tokens in `continued` a call need not follow their schemas.
    #[serde(default)]
    #[schemars(length(max = MOST_TOOLS))]
    tools: Option<Vec<Object<Tool>>>,
    /// The function to call. Default: the model decides.
    #[serde(default)]
    #[schemars(extend("default" = "auto"))]
    tool_choice: Option<ToolChoice<NamedTool>>,
    /// The amount of reasoning, such as `low` or `none`, for models whose template has a variable for it or a switch.
    reasoning_effort: Option<String>,
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
        /// The parts of each continued token.
        #[serde(skip_serializing_if = "Option::is_none")]
        parts: Option<Vec<Vec<AnswerPart>>>,
    },
    Token {
        id: u32,
        text: String,
        logprob: Option<f32>,
        top: Vec<Alternative>,
        /// The parts of the answer that this token completes. `None` if the answer is text only.
        #[serde(skip_serializing_if = "Option::is_none")]
        parts: Option<Vec<AnswerPart>>,
    },
    /// Text that was held back as a possible beginning of a stop string or of a marker.
    Rest {
        text: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        parts: Option<Vec<AnswerPart>>,
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
    let (mut fields, settings) = request.read(&FIELDS).await?;
    let continued = fields.continued.take().unwrap_or_default();
    let task = match continued.is_empty() {
        true => Task::Generation,
        false => Task::Continuation,
    };
    let model = request.model(&fields.model, task)?;
    let alternatives = fields.top_logprobs.unwrap_or(ALTERNATIVES);
    if alternatives > MOST_ALTERNATIVES {
        let rule = format!("must be at most {MOST_ALTERNATIVES}");
        return Err(ApiError::field("top_logprobs", rule));
    }
    let app = request.app.clone();
    let (mut answer_request, form) = match (fields.prompt.take(), fields.messages.take()) {
        (Some(text), None) => {
            let encoded = EncodedPrompt::text(tokens(text, &model, &app).await?);
            let generation = Generation {
                top_logprobs: Some(alternatives),
                ..Generation::new(&settings)
            };
            let answer_request = generation.request(&app, &model, encoded, 1).await?;
            (answer_request, AnswerForm::default())
        }
        (None, Some(messages)) => {
            let mut template = TemplateOptions::default();
            if let Some(effort) = fields.reasoning_effort.take() {
                template.set_effort(effort);
            }
            let choice = fields.tool_choice.as_ref().map(ToolChoice::chosen);
            let conversation = ConversationRequest {
                messages,
                tools: fields.tools.take().unwrap_or_default(),
                choice: choice.unwrap_or(CallChoice::Auto),
                parallel: true,
                template,
                settings: &settings,
                max_tokens: None,
                top_logprobs: Some(alternatives),
                form: None,
                samples: 1,
            };
            conversation.prepare(&request, &model).await?
        }
        _ => {
            let rule = "either this field or messages must be given";
            return Err(ApiError::field("prompt", rule));
        }
    };
    if form.tools.is_some() && !continued.is_empty() {
        // The constraint of calls begins at the beginning of an answer.
        answer_request.chooser.constraint = None;
    }
    let parts = AnswerParts::new(form);
    let mut parts = (!parts.is_text()).then_some(parts);
    let continued_parts = parts
        .as_mut()
        .map(|parts| parts_of(parts, &continued, &model));
    answer_request.prompt.extend(continued);
    // Lower the page's `max_tokens` to the available room instead of rejecting it.
    let room = model.room(answer_request.prompt.len()).max(1);
    let most = room.min(app.limits().tokens);
    answer_request.max_tokens = answer_request.max_tokens.map(|wanted| wanted.min(most));
    let deadline = request.deadline;
    let kept = Kept {
        streams: true,
        ..Kept::default()
    };
    let answers = request.begin(&model, vec![answer_request], kept).await?;
    let writer = Writer {
        model,
        start: Instant::now(),
        finish: FinishReason::Stop,
        parts,
        continued: continued_parts,
    };
    Ok(streamed(deadline, answers, writer))
}

/// The parts of each token of an answer so far. The bytes of a character that the last tokens begin are left to those that
/// follow.
fn parts_of(parts: &mut AnswerParts, ids: &[u32], model: &ServedModel) -> Vec<Vec<AnswerPart>> {
    let mut pending = Vec::new();
    let of_token = |&id| {
        pending.extend(model.bytes(id));
        let begun = match std::str::from_utf8(&pending) {
            Err(error) if error.error_len().is_none() => pending.split_off(error.valid_up_to()),
            _ => Vec::new(),
        };
        let whole = std::mem::replace(&mut pending, begun);
        parts.push_text(&String::from_utf8_lossy(&whole))
    };
    ids.iter().map(of_token).collect()
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
    /// The parser of the answer. `None` if it is text only.
    parts: Option<AnswerParts>,
    /// The parts of each continued token.
    continued: Option<Vec<Vec<AnswerPart>>>,
}

impl AnswerStream for Writer {
    type Item = Event;

    fn begin(&mut self, usage: Usage) -> Vec<Event> {
        vec![json_event(&PlayEvent::Begin {
            prompt_tokens: usage.prompt_tokens,
            parts: self.continued.take(),
        })]
    }

    fn next(&mut self, _: usize, event: AnswerEvent) -> Vec<Event> {
        self.finish = event.finish.unwrap_or(self.finish);
        let parts = self.parts.as_mut().map(|parts| parts.push(&event));
        let text = event.text;
        match event.token {
            Some(token) => vec![json_event(&token_event(token, text, parts, &self.model))],
            None if text.is_empty() && parts.as_ref().is_none_or(Vec::is_empty) => Vec::new(),
            None => vec![json_event(&PlayEvent::Rest { text, parts })],
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

fn token_event(
    token: Token,
    text: String,
    parts: Option<Vec<AnswerPart>>,
    model: &ServedModel,
) -> PlayEvent {
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
        parts,
    }
}
