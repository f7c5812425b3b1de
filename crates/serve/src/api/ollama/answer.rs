//! Answers, as one object or as lines of JSON.

use std::sync::Arc;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::error::OllamaError;
use super::models::timestamp;
use super::options::renamed;
use crate::api::answer_parts::{AnswerForm, AnswerPart, AnswerParts};
use crate::api::answer_stream::{AnswerStream, JsonLine};
use crate::api::answers::{AnswerEvent, FinishReason};
use crate::api::delivery::{Usage, now};
use crate::api::error::ApiError;
use crate::api::logprobs::LogProb;
use crate::model::ServedModel;

/// The field of an answer's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// The content of `message`, for chats.
    Message,
    /// `response`, for generated text.
    Response,
}

/// The requested form of an answer.
pub(super) struct Requested {
    pub content: Content,
    /// The time of the request.
    pub start: Instant,
    /// True if the answer has no reasoning.
    pub omits_thinking: bool,
    /// True if log-probabilities are requested.
    pub logprobs: bool,
}

/// An answer, or a part of one: a chat's.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "OllamaChatAnswer")]
pub(crate) struct ChatAnswer {
    #[serde(flatten)]
    answer: Answer,
    message: AnswerMessage,
}

/// An answer, or a part of one: a generated text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "OllamaGenerateAnswer")]
pub(crate) struct GenerateAnswer {
    #[serde(flatten)]
    answer: Answer,
    response: String,
    /// The model's reasoning before the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<String>,
}

/// The fields of all answers and their parts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "OllamaAnswer")]
struct Answer {
    model: String,
    /// The time, as in RFC 3339.
    created_at: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    logprobs: Vec<LogProb>,
    /// True for the end of the answer.
    done: bool,
    #[serde(flatten)]
    end: Option<End>,
}

/// The end of an answer.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "OllamaEnd")]
struct End {
    done_reason: DoneReason,
    /// Nanoseconds from the request to the end.
    total_duration: u64,
    /// Always 0: a model that is loaded for a request counts as part of its prompt.
    load_duration: u64,
    /// Tokens of the prompt.
    prompt_eval_count: usize,
    /// Nanoseconds from the request to the first token.
    prompt_eval_duration: u64,
    /// Tokens of the answer.
    eval_count: usize,
    /// Nanoseconds from the first token to the end.
    eval_duration: u64,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "OllamaDoneReason")]
enum DoneReason {
    /// The end of the answer.
    #[default]
    Stop,
    /// The maximum number of tokens.
    Length,
    /// The request had no prompt.
    Load,
}

/// The model's message, or a part of it.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "OllamaAnswerMessage")]
struct AnswerMessage {
    role: &'static str,
    content: String,
    /// The model's reasoning before the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<String>,
    /// The functions that the answer calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    tool_calls: Vec<ToolCall>,
}

/// A call of a function.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "OllamaToolCall")]
struct ToolCall {
    id: String,
    function: ToolFunction,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "OllamaToolFunction")]
struct ToolFunction {
    index: usize,
    name: String,
    arguments: Map<String, Value>,
}

/// The body of an answer, or a line of one.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Body {
    Chat(ChatAnswer),
    Generate(GenerateAnswer),
}

/// A part of an answer, of any endpoint.
#[derive(Default)]
struct Part {
    text: String,
    thinking: Option<String>,
    tool_calls: Vec<ToolCall>,
    logprobs: Vec<LogProb>,
}

/// Writes an answer while it is generated. A call is written once it is complete.
pub(super) struct Writer {
    model: Arc<ServedModel>,
    requested: Requested,
    parts: AnswerParts,
    /// The part that has not been written yet.
    part: Part,
    /// The last call, whose arguments may grow.
    call: Option<(String, String, String)>,
    calls: usize,
    first: Option<Instant>,
    finish: FinishReason,
}

impl Writer {
    pub fn new(model: Arc<ServedModel>, form: AnswerForm, requested: Requested) -> Self {
        Self {
            model,
            requested,
            parts: AnswerParts::new(form),
            part: Part::default(),
            call: None,
            calls: 0,
            first: None,
            finish: FinishReason::Stop,
        }
    }

    /// Processes the next event.
    pub fn push(&mut self, event: &AnswerEvent) {
        self.first.get_or_insert_with(Instant::now);
        let token = event.token.as_ref().filter(|_| self.requested.logprobs);
        let logprob = token.and_then(|token| LogProb::new(&self.model, token));
        self.part.logprobs.extend(logprob);
        for part in self.parts.push(event) {
            if !matches!(part, AnswerPart::Arguments(_)) {
                self.end_call();
            }
            match part {
                AnswerPart::Reasoning(_) if self.requested.omits_thinking => {}
                AnswerPart::Reasoning(text) => {
                    *self.part.thinking.get_or_insert_default() += &text;
                }
                AnswerPart::Text(text) => self.part.text += &text,
                AnswerPart::Call { id, name } => self.call = Some((id, name, String::new())),
                AnswerPart::Arguments(text) => {
                    if let Some((.., arguments)) = &mut self.call {
                        *arguments += &text;
                    }
                }
            }
        }
        if let Some(finish) = event.finish {
            self.end_call();
            self.finish = finish;
        }
    }

    /// Adds the last call to the part. One whose arguments are incomplete is left out.
    fn end_call(&mut self) {
        let Some((id, name, arguments)) = self.call.take() else {
            return;
        };
        if let Ok(arguments) = serde_json::from_str(&arguments) {
            let index = self.calls;
            self.calls += 1;
            let function = ToolFunction {
                index,
                name,
                arguments,
            };
            self.part.tool_calls.push(ToolCall { id, function });
        }
    }

    /// The answer to a request without a prompt.
    pub fn loaded(&mut self) -> Body {
        let end = End {
            done_reason: DoneReason::Load,
            ..End::default()
        };
        self.body(Some(end))
    }

    /// The unwritten part and the end of the answer.
    pub fn whole(mut self, usage: Usage) -> Body {
        let end = self.ended(usage);
        self.body(Some(end))
    }

    fn ended(&self, usage: Usage) -> End {
        let now = Instant::now();
        let first = self.first.unwrap_or(now);
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let start = self.requested.start;
        End {
            done_reason: match self.finish {
                FinishReason::Stop => DoneReason::Stop,
                FinishReason::Length => DoneReason::Length,
            },
            total_duration: nanoseconds(now.duration_since(start)),
            load_duration: 0,
            prompt_eval_count: usage.prompt_tokens,
            prompt_eval_duration: nanoseconds(first.duration_since(start)),
            eval_count: usage.completion_tokens,
            eval_duration: nanoseconds(now.duration_since(first)),
        }
    }

    fn body(&mut self, end: Option<End>) -> Body {
        let part = std::mem::take(&mut self.part);
        let answer = Answer {
            model: self.model.name.clone(),
            created_at: timestamp(now()),
            logprobs: part.logprobs,
            done: end.is_some(),
            end,
        };
        match self.requested.content {
            Content::Message => Body::Chat(ChatAnswer {
                answer,
                message: AnswerMessage {
                    role: "assistant",
                    content: part.text,
                    thinking: part.thinking,
                    tool_calls: part.tool_calls,
                },
            }),
            Content::Response => Body::Generate(GenerateAnswer {
                answer,
                response: part.text,
                thinking: part.thinking,
            }),
        }
    }
}

impl AnswerStream for Writer {
    type Item = JsonLine;

    fn begin(&mut self, _: Usage) -> Vec<JsonLine> {
        Vec::new()
    }

    fn next(&mut self, _: usize, event: AnswerEvent) -> Vec<JsonLine> {
        self.push(&event);
        let part = &self.part;
        let is_empty = part.text.is_empty()
            && part.thinking.is_none()
            && part.tool_calls.is_empty()
            && part.logprobs.is_empty();
        // The last part is in the line of the end.
        match is_empty || event.finish.is_some() {
            true => Vec::new(),
            false => vec![JsonLine::new(&self.body(None))],
        }
    }

    fn end(&mut self, usage: Usage) -> Vec<JsonLine> {
        let end = self.ended(usage);
        vec![JsonLine::new(&self.body(Some(end)))]
    }

    fn failure(self, error: ApiError) -> JsonLine {
        JsonLine::new(&OllamaError::from(renamed(error)))
    }
}
