//! `POST /v1/chat/completions`: answers to a conversation.
//!
//! `answer_text` splits generated text into content and function calls, `functions` has deprecated fields, and `response`
//! defines the response bodies.

mod answer_text;
mod functions;
mod response;

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, LazyLock};

use axum::response::Response;
use axum::response::sse::Event;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::answer_parts::AnswerForm;
use super::answer_stream::{AnswerStream, done, json_event, streamed};
use super::answers::AnswerEvent;
use super::body::{FieldGroup, KnownFields, Object, Tagged};
use super::bounds::Kept;
use super::conversation::{
    CallChoice, ConversationRequest, Message, NamedTool, TemplateOptions, Tool, ToolChoice,
    ToolFunction,
};
use super::delivery::{Delivery, Usage, name, now};
use super::error::ApiError;
use super::fields;
use super::json::json;
use super::logprobs::LogProb;
use super::model_request::ModelRequest;
use super::settings::{Settings, TextForm, json_grammar};
use crate::limits::{MOST_ALTERNATIVES, MOST_TOOLS};
use crate::model::{ServedModel, Task};
use answer_text::{AnswerDelta, AnswerOutput, AnswerText};
use functions::FunctionName;
pub(crate) use response::ChatCompletion;
use response::{Choice, Chunk, ChunkChoice, Delta, LogProbs};

/// The fields that only these requests have.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Chat {
    /// The conversation so far.
    #[schemars(length(min = 1))]
    messages: Vec<Object<Message>>,
    /// Maximum number of tokens of the answer; overrides `max_tokens`.
    #[schemars(range(min = 0, max = u32::MAX))]
    max_completion_tokens: Option<u32>,
    /// True to return the log-probabilities of the tokens in the model's own distribution: before temperature and penalties.
    #[schemars(extend("default" = false))]
    logprobs: Option<bool>,
    /// The number of alternatives per token that are also returned; requires `logprobs`.
    #[schemars(range(min = 0, max = MOST_ALTERNATIVES), extend("default" = 0))]
    top_logprobs: Option<usize>,
    /// The form of the answer.
    response_format: Option<Tagged<ResponseFormat>>,
    /// The functions that the answer may call.
    #[serde(default)]
    #[schemars(length(max = MOST_TOOLS))]
    tools: Option<Vec<Object<Tool>>>,
    /// The function to call. Default: the model decides.
    #[serde(default)]
    #[schemars(extend("default" = "auto"))]
    tool_choice: Option<ToolChoice<NamedTool>>,
    /// The amount of reasoning, such as `low` or `none`, for models whose template has a variable for it or a switch.
    reasoning_effort: Option<String>,
    /// The place of the model's reasoning, as in llama.cpp.
    #[schemars(extend("default" = "auto"))]
    reasoning_format: Option<ReasoningPlace>,
    /// False to leave the reasoning out of the answer, as in vLLM.
    #[schemars(extend("default" = true))]
    include_reasoning: Option<bool>,
    /// False limits the answer to one call.
    #[serde(default)]
    #[schemars(extend("default" = true))]
    parallel_tool_calls: Option<bool>,
    /// Deprecated: `tools` without their type. The answer has at most one call, in `function_call`.
    #[serde(default)]
    #[schemars(length(max = MOST_TOOLS))]
    functions: Option<Vec<Object<ToolFunction>>>,
    /// Deprecated: the function to call among `functions`. Default: the model decides.
    #[serde(default)]
    function_call: Option<ToolChoice<FunctionName>>,
}

/// The place of reasoning in an answer.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum ReasoningPlace {
    /// The field `reasoning_content`.
    Auto,
    /// The same as `auto`.
    Deepseek,
    /// The content, with its tags.
    None,
}

/// The form of an answer.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum ResponseFormat {
    /// Any text.
    Text {},
    /// Any JSON object.
    JsonObject {
        /// A schema of the object, as in llama.cpp.
        schema: Option<BTreeMap<String, Value>>,
    },
    /// JSON that follows a schema.
    JsonSchema {
        /// The schema and its name.
        json_schema: Object<NamedSchema>,
    },
}

/// A schema with a name.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NamedSchema {
    /// Has no effect.
    #[allow(dead_code)]
    name: String,
    /// Has no effect.
    #[allow(dead_code)]
    description: Option<String>,
    /// The schema. Default: any object.
    schema: Option<BTreeMap<String, Value>>,
    /// Has no effect: the text always follows the schema.
    #[allow(dead_code)]
    strict: Option<bool>,
}

impl FieldGroup for Chat {}

static FIELDS: LazyLock<KnownFields<(Delivery, Chat, TemplateOptions, Settings)>> =
    LazyLock::new(|| KnownFields::new(&fields::CHAT));

/// Handles the request.
pub(crate) async fn answer(mut request: ModelRequest) -> Result<Response, ApiError> {
    let (delivery, mut fields, mut template, settings) = request.read(&FIELDS).await?;
    let model = request.model(&delivery.model, Task::Generation)?;
    let samples = delivery.samples(&model)?;
    let logprobs = fields.logprobs == Some(true);
    let alternatives = fields.top_logprobs.unwrap_or(0);
    if alternatives > MOST_ALTERNATIVES {
        let rule = format!("must be at most {MOST_ALTERNATIVES}");
        return Err(ApiError::field("top_logprobs", rule));
    }
    if alternatives > 0 && !logprobs {
        return Err(ApiError::field("top_logprobs", "needs \"logprobs\": true"));
    }
    let messages = mem::take(&mut fields.messages);
    let (tools, has_functions) = fields.callable()?;
    if let Some(effort) = fields.reasoning_effort.take() {
        template.set_effort(effort);
    }
    let choice = match (has_functions, &fields.function_call, &fields.tool_choice) {
        (true, Some(choice), _) => choice.chosen(),
        (false, _, Some(choice)) => choice.chosen(),
        _ => CallChoice::Auto,
    };
    let conversation = ConversationRequest {
        messages,
        tools,
        choice,
        parallel: !has_functions && fields.parallel_tool_calls != Some(false),
        template,
        settings: &settings,
        max_tokens: fields.max_completion_tokens,
        top_logprobs: logprobs.then_some(alternatives),
        form: fields.form()?,
        samples,
    };
    let prepared = conversation.prepare(&request, &model).await;
    let (answer_request, form) = match has_functions {
        true => prepared.map_err(functions::renamed)?,
        false => prepared?,
    };
    let output = AnswerOutput {
        form: match fields.reasoning_format {
            Some(ReasoningPlace::None) => AnswerForm {
                reasoning: None,
                ..form
            },
            _ => form,
        },
        omits_reasoning: fields.include_reasoning == Some(false),
        has_functions,
    };
    let kept = Kept {
        streams: delivery.streams(),
        ..Kept::default()
    };
    drop((fields, settings));
    let (app, deadline) = (request.app.clone(), request.deadline);
    let mut answers = request.begin(&model, vec![answer_request], kept).await?;
    let mut writer = Writer {
        id: name("chatcmpl"),
        created: now(),
        model,
        logprobs,
        texts: (0..samples)
            .map(|_| AnswerText::new(output.clone()))
            .collect(),
        reports_usage: delivery.reports_usage(),
    };
    if delivery.streams() {
        return Ok(streamed(deadline, answers, writer));
    }
    let mut choices: Vec<Choice> = (0..samples).map(|index| writer.empty(index)).collect();
    while let Some(event) = answers.next().await {
        let (_, event) = event?;
        let logprob = writer.logprob(&event);
        let delta = writer.texts[event.sample].push(&event);
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
    json(&app, completion, answers.into_reservation()).await
}

impl Chat {
    /// Takes the functions that the answer may call out of the request. The second value is true if they are the deprecated
    /// `functions`.
    fn callable(&mut self) -> Result<(Vec<Object<Tool>>, bool), ApiError> {
        let tools = self.tools.take().unwrap_or_default();
        let functions = self.functions.take().unwrap_or_default();
        if functions.is_empty() {
            return match self.function_call {
                Some(ToolChoice::Named(_)) => {
                    Err(ApiError::field("function_call", "needs functions"))
                }
                _ => Ok((tools, false)),
            };
        }
        if !tools.is_empty() || self.tool_choice.is_some() {
            let rule = "cannot be combined with tools and tool_choice";
            return Err(ApiError::field("functions", rule));
        }
        let functions = functions.into_iter();
        let tools = functions.map(|function| Object::new(Tool::new(function)));
        Ok((tools.collect(), true))
    }

    fn form(&self) -> Result<Option<TextForm>, ApiError> {
        let schema = match self.response_format.as_ref().map(|format| &format.0) {
            None | Some(ResponseFormat::Text {}) => return Ok(None),
            Some(ResponseFormat::JsonObject { schema }) => schema.as_ref(),
            Some(ResponseFormat::JsonSchema { json_schema }) => json_schema.0.schema.as_ref(),
        };
        Ok(Some(TextForm {
            field: "response_format",
            grammar: json_grammar(schema)?,
        }))
    }
}

/// Formats the answers to one request.
struct Writer {
    id: String,
    created: u64,
    model: Arc<ServedModel>,
    logprobs: bool,
    /// The text state of each sample.
    texts: Vec<AnswerText>,
    /// True if a stream ends with the token counts.
    reports_usage: bool,
}

impl Writer {
    fn empty(&self, index: usize) -> Choice {
        Choice {
            index,
            logprobs: self.logprobs.then(LogProbs::default),
            ..Choice::default()
        }
    }

    fn logprob(&self, event: &AnswerEvent) -> Option<LogProb> {
        let token = event.token.as_ref().filter(|_| self.logprobs)?;
        LogProb::new(&self.model, token)
    }

    fn chunk(&self, choices: Vec<ChunkChoice>, usage: Option<Usage>) -> Event {
        json_event(&Chunk {
            id: self.id.clone(),
            object: "chat.completion.chunk",
            created: self.created,
            model: self.model.name.clone(),
            choices,
            usage,
        })
    }
}

impl AnswerStream for Writer {
    type Item = Event;

    fn begin(&mut self, _: Usage) -> Vec<Event> {
        let begun = |index| ChunkChoice {
            index,
            delta: Delta {
                role: Some("assistant"),
                content: Some(String::new()),
                ..Delta::default()
            },
            logprobs: None,
            finish_reason: None,
        };
        (0..self.texts.len())
            .map(|index| self.chunk(vec![begun(index)], None))
            .collect()
    }

    fn next(&mut self, _: usize, event: AnswerEvent) -> Vec<Event> {
        let content = self.logprob(&event).map(|logprob| vec![logprob]);
        let AnswerDelta {
            message,
            finish_reason,
        } = self.texts[event.sample].push(&event);
        if message.is_empty() && content.is_none() && finish_reason.is_none() {
            return Vec::new();
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
        vec![self.chunk(vec![choice], None)]
    }

    fn end(&mut self, usage: Usage) -> Vec<Event> {
        let usage = self.reports_usage.then_some(usage);
        let usage = usage.map(|usage| self.chunk(Vec::new(), Some(usage)));
        usage.into_iter().chain([done()]).collect()
    }

    fn failure(self, error: ApiError) -> Event {
        json_event(&error.answer())
    }
}
