//! `POST /v1/chat/completions`: what a conversation is answered.
//!
//! Map: `messages` and `tools` are fields of requests, `answer_text` makes text and calls of functions of what the model generates,
//! `response` has the bodies of answers.

mod answer_text;
mod messages;
mod response;
mod tools;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::response::sse::Event;
use emberlm_generate::Grammar;
use emberlm_tokenizer::chat::ChatError;
use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc::error::SendError;
use tokio::task::spawn_blocking;

use super::App;
use super::answers::{AnswerEvent, Answers, Ask, Token};
use super::body::{Body, Fields, Object, schema};
use super::deadline::Deadline;
use super::delivery::{Delivery, Pieces, Usage, name, now, piece, seed, streamed};
use super::error::ApiError;
use super::memory::{self, Kept};
use super::settings::{Settings, constrained, json_grammar};
use crate::limits::{MOST_ALTERNATIVES, MOST_TOOLS};
use crate::model::ServedModel;
use crate::request_log::Trace;
use crate::tools::ToolFormat;
use answer_text::{AnswerDelta, AnswerText};
pub(crate) use messages::Message;
pub(crate) use response::ChatCompletion;
use response::{Choice, Chunk, ChunkChoice, Delta, Likely, LogProb, LogProbs};
use tools::{Calling, Tool, ToolChoice, tool_format};

/// The fields that only these requests have.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Chat {
    /// The conversation so far.
    #[schemars(length(min = 1))]
    messages: Vec<Object<Message>>,
    /// As `max_tokens`, before which it goes.
    #[schemars(range(min = 0, max = u32::MAX))]
    max_completion_tokens: Option<u32>,
    /// Whether the tokens' log-probabilities are told.
    logprobs: Option<bool>,
    /// Of how many of the likeliest tokens beside; needs `logprobs`.
    #[schemars(range(min = 0, max = MOST_ALTERNATIVES))]
    top_logprobs: Option<usize>,
    /// What the answer must be.
    #[serde(default, deserialize_with = "tagged")]
    response_format: Option<ResponseFormat>,
    /// The functions that an answer may call.
    #[serde(default)]
    #[schemars(length(max = MOST_TOOLS))]
    tools: Option<Vec<Object<Tool>>>,
    /// Which of them it calls; by default as the model chooses.
    #[serde(default)]
    tool_choice: Option<ToolChoice>,
    /// Whether it may call several; it may where this is not said.
    #[serde(default)]
    parallel_tool_calls: Option<bool>,
}

/// What an answer must be.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum ResponseFormat {
    /// Any text.
    Text {},
    /// Any JSON object.
    JsonObject {},
    /// JSON that a schema describes.
    JsonSchema {
        /// The schema and its name.
        json_schema: Object<NamedSchema>,
    },
}

/// A value that its `type` tells from others. A `type` that is a number would be taken for the place of one in the list:
/// serde knows both.
pub(crate) fn tagged<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    match Option::<Object<Value>>::deserialize(deserializer)? {
        None => Ok(None),
        Some(Object(value)) if value["type"].is_string() => {
            Option::deserialize(value).map_err(Error::custom)
        }
        Some(_) => Err(Error::custom(
            "`type` must be text, json_object or json_schema",
        )),
    }
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NamedSchema {
    /// Has no effect.
    #[allow(dead_code)]
    name: String,
    /// Has no effect.
    #[allow(dead_code)]
    description: Option<String>,
    /// The schema; any object without one.
    schema: Option<BTreeMap<String, Value>>,
    /// Has no effect: what is written always is what the schema describes.
    #[allow(dead_code)]
    strict: Option<bool>,
}

/// Which fields these requests may have.
pub(crate) fn schemas() -> [Value; 3] {
    [schema::<Delivery>(), schema::<Chat>(), schema::<Settings>()]
}

/// The tokens of a conversation that is to be answered, and what ends the answer.
pub(crate) struct Opened {
    pub prompt: Vec<u32>,
    pub stop_tokens: Vec<u32>,
    pub stop_strings: Vec<String>,
}

/// What a template is given.
#[derive(Serialize)]
struct Record<'a> {
    messages: &'a [Object<Message>],
    /// A template asks whether there are tools.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tools: &'a [Object<Tool>],
}

/// Writes a conversation by the model's template, with the functions that the answer may call.
///
/// # Errors
/// The model has none, or it refuses the conversation.
pub(crate) async fn open(
    model: &Arc<ServedModel>,
    messages: &[Object<Message>],
    tools: &[Object<Tool>],
) -> Result<Opened, ApiError> {
    for (index, message) in messages.iter().enumerate() {
        message.0.check(index)?;
    }
    has_template(model)?;
    if messages.iter().any(|message| message.0.calls_functions()) {
        tool_format(model, "messages")?;
    }
    let record = serde_json::to_string(&Record { messages, tools });
    let record = record.map_err(|error| ApiError::field("messages", error.to_string()))?;
    render(model, record).await
}

/// Refuses a model without a chat template.
fn has_template(model: &ServedModel) -> Result<(), ApiError> {
    if model.chat.is_some() {
        return Ok(());
    }
    let rule = format!(
        "{} has no chat template: use /v1/completions, or serve it with --chat-template",
        model.name
    );
    Err(ApiError::field("model", rule))
}

/// Writes a conversation, a JSON object with `messages`, by the model's template.
///
/// # Errors
/// The model has none, or it refuses the conversation.
pub(crate) async fn render(model: &Arc<ServedModel>, record: String) -> Result<Opened, ApiError> {
    has_template(model)?;
    let model = Arc::clone(model);
    let written = spawn_blocking(move || {
        let chat = model.chat.as_ref()?;
        Some(chat.encoder.prompt(&record).map(|prompt| Opened {
            prompt,
            stop_tokens: chat.stops.tokens.clone(),
            stop_strings: chat.stops.strings.clone(),
        }))
    });
    let written = written.await.ok().flatten();
    let written = written.ok_or_else(|| ApiError::internal("the template could not be run"))?;
    written.map_err(|error| match error {
        ChatError::Unavailable { .. } => ApiError::internal("the template could not be run"),
        error => ApiError::field("messages", error.to_string()),
    })
}

/// Answers.
pub(crate) async fn answer(
    State(app): State<App>,
    Extension(deadline): Extension<Deadline>,
    Extension(trace): Extension<Arc<Trace>>,
    Body(body): Body,
) -> Result<Response, ApiError> {
    let (delivery, asked, settings) = read(&app, body)?;
    let model = app.model(&delivery.model)?;
    trace.set_model(&model);
    let samples = delivery.samples(&model)?;
    let logprobs = asked.logprobs == Some(true);
    let alternatives = asked.top_logprobs.unwrap_or(0);
    if alternatives > MOST_ALTERNATIVES {
        let rule = format!("must be at most {MOST_ALTERNATIVES}");
        return Err(ApiError::field("top_logprobs", rule));
    }
    if asked.top_logprobs.is_some() && !logprobs {
        return Err(ApiError::field("top_logprobs", "needs \"logprobs\": true"));
    }
    let calling = asked.calling(&model)?;
    let tools = calling.map_or(&[][..], |calling| calling.tools());
    let opened = open(&model, &asked.messages, tools).await?;
    let mut chooser = settings.chooser(model.sampling, seed())?;
    chooser.top_logprobs = logprobs.then_some(alternatives);
    let grammar = match (asked.grammar()?, settings.grammar()?) {
        (Some(_), Some(_)) => {
            let rule = "cannot be had together with structured_outputs";
            return Err(ApiError::field("response_format", rule));
        }
        (one, other) => one.or(other),
    };
    if grammar.is_some() && calling.is_some() {
        let rule = "cannot be had together with response_format or structured_outputs";
        return Err(ApiError::field("tools", rule));
    }
    constrained(&model, &mut chooser, grammar).await?;
    if let Some(calling) = calling {
        chooser.constraint = Some(calling.constraint(&model).await?);
    }
    let format = calling.map(|calling| calling.format);
    let ask = Ask {
        prompt: opened.prompt,
        samples,
        max_tokens: match asked.max_completion_tokens {
            Some(tokens) => Some(tokens as usize),
            None => settings.max_tokens(),
        },
        stops: settings.stops(&opened.stop_strings)?,
        stop_tokens: opened.stop_tokens,
        chooser,
    };
    let kept = Kept {
        streams: delivery.streams(),
        ..Kept::default()
    };
    let mut answers = Answers::begin(&app, &model, &trace, vec![ask], kept).await?;
    drop((asked, settings));
    let writer = Writer {
        id: name("chatcmpl"),
        created: now(),
        model,
        logprobs,
        format,
    };
    if delivery.streams() {
        let reports_usage = delivery.tells_usage();
        let late = piece(&deadline.error().answer());
        return Ok(streamed(
            deadline,
            move || late,
            move |pieces| async move {
                // It ends when the client has left.
                let _ = writer
                    .stream(answers, samples, &pieces, reports_usage)
                    .await;
            },
        ));
    }
    let mut choices: Vec<Choice> = (0..samples).map(|index| writer.empty(index)).collect();
    let mut texts: Vec<AnswerText> = (0..samples).map(|_| AnswerText::new(format)).collect();
    while let Some(event) = answers.next().await {
        let (_, event) = event?;
        let logprob = writer.logprob(&event);
        let delta = texts[event.sample].push(&event);
        let choice = &mut choices[event.sample];
        choice.message.add(delta.message);
        choice.finish_reason = delta.finish_reason.or(choice.finish_reason);
        if let Some(all) = &mut choice.logprobs {
            all.content.extend(logprob);
        }
    }
    for choice in &mut choices {
        choice.message.complete();
    }
    let completion = ChatCompletion {
        id: writer.id,
        object: "chat.completion",
        created: writer.created,
        model: writer.model.name.clone(),
        choices,
        usage: answers.usage(),
    };
    Ok(memory::json(&completion, answers.into_reservation()))
}

/// The fields of a request, which keep nothing of its body.
fn read(app: &App, body: Bytes) -> Result<(Delivery, Chat, Settings), ApiError> {
    let fields = Fields::new(&body)?;
    let read = (fields.take()?, fields.take()?, fields.take()?);
    fields.check_known(&app.schemas().chat)?;
    Ok(read)
}

impl Chat {
    /// The functions that the answers may call, if any.
    fn calling(&self, model: &ServedModel) -> Result<Option<Calling<'_>>, ApiError> {
        let tools = self.tools.as_deref().unwrap_or_default();
        let parallel = self.parallel_tool_calls != Some(false);
        Calling::new(model, tools, self.tool_choice.as_ref(), parallel)
    }

    fn grammar(&self) -> Result<Option<Grammar>, ApiError> {
        let any = BTreeMap::from([("type".to_owned(), json!("object"))]);
        Ok(match &self.response_format {
            None | Some(ResponseFormat::Text {}) => None,
            Some(ResponseFormat::JsonObject {}) => Some(json_grammar(&any)?),
            Some(ResponseFormat::JsonSchema { json_schema }) => {
                Some(json_grammar(json_schema.0.schema.as_ref().unwrap_or(&any))?)
            }
        })
    }
}

/// Writes the answers of one request.
struct Writer {
    id: String,
    created: u64,
    model: Arc<ServedModel>,
    logprobs: bool,
    /// How the answers call functions, if they may.
    format: Option<&'static ToolFormat>,
}

impl Writer {
    fn empty(&self, index: usize) -> Choice {
        Choice {
            index,
            logprobs: self.logprobs.then(LogProbs::default),
            ..Choice::default()
        }
    }

    fn likely(&self, id: u32, logprob: f32) -> Likely {
        let bytes = self.model.bytes(id);
        Likely {
            token: String::from_utf8_lossy(&bytes).into_owned(),
            logprob,
            bytes: Some(bytes),
        }
    }

    fn logprob(&self, event: &AnswerEvent) -> Option<LogProb> {
        let Token { chosen, .. } = event.token.as_ref().filter(|_| self.logprobs)?;
        let likeliest = chosen.alternatives.iter();
        Some(LogProb {
            token: self.likely(chosen.id, chosen.logprob?),
            top_logprobs: likeliest
                .map(|&(id, logprob)| self.likely(id, logprob))
                .collect(),
        })
    }

    fn chunk(&self, choices: Vec<ChunkChoice>, usage: Option<Usage>) -> Event {
        piece(&Chunk {
            id: self.id.clone(),
            object: "chat.completion.chunk",
            created: self.created,
            model: self.model.name.clone(),
            choices,
            usage,
        })
    }

    /// Sends the answers as they are made.
    ///
    /// # Errors
    /// Nobody hears them.
    async fn stream(
        &self,
        mut answers: Answers,
        samples: usize,
        pieces: &Pieces,
        reports_usage: bool,
    ) -> Result<(), SendError<Event>> {
        for index in 0..samples {
            let begun = ChunkChoice {
                index,
                delta: Delta {
                    role: Some("assistant"),
                    content: Some(String::new()),
                    ..Delta::default()
                },
                logprobs: None,
                finish_reason: None,
            };
            pieces.send(self.chunk(vec![begun], None)).await?;
        }
        let mut texts: Vec<AnswerText> =
            (0..samples).map(|_| AnswerText::new(self.format)).collect();
        while let Some(event) = answers.next().await {
            let event = match event {
                Ok((_, event)) => event,
                Err(error) => return pieces.send(piece(&error.answer())).await,
            };
            let content = self.logprob(&event).map(|logprob| vec![logprob]);
            let AnswerDelta {
                message,
                finish_reason,
            } = texts[event.sample].push(&event);
            if message.is_empty() && content.is_none() && finish_reason.is_none() {
                continue;
            }
            let choice = ChunkChoice {
                index: event.sample,
                delta: message,
                logprobs: content.map(|content| LogProbs {
                    content,
                    refusal: None,
                }),
                finish_reason,
            };
            pieces.send(self.chunk(vec![choice], None)).await?;
        }
        if reports_usage {
            pieces
                .send(self.chunk(Vec::new(), Some(answers.usage())))
                .await?;
        }
        pieces.send(Event::default().data("[DONE]")).await
    }
}
