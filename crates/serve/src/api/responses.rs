//! `POST /v1/responses`: the part of OpenAI's Responses API that corresponds to chat completions.
//!
//! Nothing is stored: a request that needs an earlier response, a stored prompt or a conversation is rejected (`fields`).
//!
//! | file | content |
//! |---|---|
//! | `input`, `tools` | fields of requests, as chat templates receive them |
//! | `output` | the output items while they are generated |
//! | `response`, `events` | the body of a response; its events |

mod events;
mod input;
mod output;
mod response;
mod tools;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::answer_stream::streamed;
use super::body::{FieldGroup, KnownFields, Object, Tagged};
use super::bounds::Kept;
use super::conversation::{ConversationRequest, Message, TemplateOptions, ToolChoice};
use super::delivery::now;
use super::error::ApiError;
use super::fields;
use super::json::json;
use super::model_request::ModelRequest;
use super::settings::{Settings, TextForm, json_grammar};
use crate::limits::{MOST_ALTERNATIVES, MOST_TOOLS};
use crate::model::Task;
pub(crate) use events::STREAM_EVENTS;
use events::Writer;
use input::Input;
use output::OutputItems;
pub(crate) use response::ResponseBody;
use response::id;
use tools::{FunctionTool, NamedFunction};

/// The fields beside [`Settings`].
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Responses {
    /// The name or an alias of the model.
    model: String,
    /// The user's message, or the conversation so far as a list of items. The `output` of earlier answers can be part of it.
    input: Input,
    /// A system message before the input.
    instructions: Option<String>,
    /// Maximum number of tokens of the answer; overrides `max_tokens`. An answer that reaches it has the status
    /// `incomplete`.
    #[schemars(range(min = 0, max = u32::MAX))]
    max_output_tokens: Option<u32>,
    /// The form of the answer's text.
    text: Option<Object<TextConfig>>,
    /// The model's reasoning.
    reasoning: Option<Object<ReasoningConfig>>,
    /// True to send the answer while it is generated, as server-sent events.
    #[schemars(extend("default" = false))]
    stream: Option<bool>,
    /// Returned with the answer; it has no other effect.
    metadata: Option<BTreeMap<String, Value>>,
    /// The functions that the answer may call, with the fields of each next to `type`. Each call is an output item of type
    /// `function_call`.
    #[schemars(length(max = MOST_TOOLS))]
    tools: Option<Vec<Object<FunctionTool>>>,
    /// The function to call. Default: the model decides.
    #[schemars(extend("default" = "auto"))]
    tool_choice: Option<ToolChoice<NamedFunction>>,
    /// False limits the answer to one call.
    #[schemars(extend("default" = true))]
    parallel_tool_calls: Option<bool>,
    /// Additions to the answer: `["message.output_text.logprobs"]` returns the log-probabilities of the text's tokens.
    include: Option<Vec<Included>>,
    /// The number of alternatives per token of the text; requires `include`.
    #[schemars(range(min = 0, max = MOST_ALTERNATIVES), extend("default" = 0))]
    top_logprobs: Option<usize>,
}

/// The amount of the model's reasoning.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReasoningConfig {
    /// Such as `low` or `none`, for models whose template has a variable for it or a switch.
    effort: Option<String>,
}

/// An addition to the answer.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
enum Included {
    /// The log-probabilities of the text's tokens.
    #[serde(rename = "message.output_text.logprobs")]
    Logprobs,
    /// Has no effect: reasoning items have their text.
    #[serde(rename = "reasoning.encrypted_content")]
    Reasoning,
}

/// The form of the answer's text.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TextConfig {
    /// The format of the text.
    format: Option<Tagged<TextFormat>>,
}

/// The format of the answer's text.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum TextFormat {
    /// Any text.
    Text {},
    /// Any JSON object.
    JsonObject {},
    /// JSON that follows a schema.
    JsonSchema {
        /// Has no effect.
        name: String,
        /// Has no effect.
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// The schema.
        schema: BTreeMap<String, Value>,
        /// Has no effect: the text always follows the schema.
        #[serde(skip_serializing_if = "Option::is_none")]
        strict: Option<bool>,
    },
}

impl FieldGroup for Responses {}

static FIELDS: LazyLock<KnownFields<(Responses, TemplateOptions, Settings)>> =
    LazyLock::new(|| KnownFields::new(&fields::RESPONSES));

/// Handles a request.
pub(crate) async fn answer(mut request: ModelRequest) -> Result<Response, ApiError> {
    let (mut fields, mut template, settings) = request.read(&FIELDS).await?;
    fields.check()?;
    let model = request.model(&fields.model, Task::Generation)?;
    let streams = fields.stream == Some(true);
    let messages = fields.messages()?;
    let functions = fields.tools.iter().flatten();
    let tools = functions.map(|tool| Object::new(tool.0.to_tool()));
    let tools = tools.collect();
    let parallel = fields.parallel_tool_calls != Some(false);
    let choice = fields.tool_choice.as_ref();
    if let Some(effort) = fields.reasoning.take().and_then(|config| config.0.effort) {
        template.set_effort(effort);
    }
    let conversation = ConversationRequest {
        messages,
        tools,
        choice: choice.map(ToolChoice::chosen).unwrap_or_default(),
        parallel,
        template,
        settings: &settings,
        max_tokens: fields.max_output_tokens,
        top_logprobs: fields.logprobs()?,
        form: fields.form()?,
        samples: 1,
    };
    let prepared = conversation.prepare(&request, &model).await;
    let (answer_request, form) = prepared.map_err(renamed)?;
    let (app, deadline, body_len) = (request.app.clone(), request.deadline, request.body_len);
    let kept = Kept {
        streams,
        // The last events of a stream each have the complete text. The first and the last have the returned request
        // fields.
        repeats: if streams { 4 } else { 0 },
        returned: body_len * if streams { 5 } else { 2 },
        ..Kept::default()
    };
    let (sampler, top_logprobs) = (
        answer_request.chooser.sampler,
        answer_request.chooser.top_logprobs,
    );
    let answers = request.begin(&model, vec![answer_request], kept).await;
    let mut answers = answers.map_err(renamed)?;
    let name = model.name.clone();
    let begin = move || {
        Ok(ResponseBody {
            id: id("resp"),
            created_at: now(),
            instructions: written(&fields.instructions)?,
            max_output_tokens: fields.max_output_tokens,
            metadata: written(&fields.metadata.unwrap_or_default())?,
            model: name,
            parallel_tool_calls: parallel,
            temperature: sampler.temperature,
            top_p: sampler.top_p,
            text: written(&fields.text.map(|text| text.0).unwrap_or_default())?,
            tool_choice: written(&fields.tool_choice.unwrap_or_default())?,
            tools: written(&fields.tools.unwrap_or_default())?,
            top_logprobs: top_logprobs.unwrap_or(0),
            ..ResponseBody::default()
        })
    };
    let response = app.work(body_len, begin).await?;
    drop(settings);
    let mut writer = Writer {
        response,
        output: OutputItems::new(form),
        model,
        logprobs: top_logprobs.is_some(),
        sequence: 0,
    };
    if streams {
        return Ok(streamed(deadline, answers, writer));
    }
    writer.output.begin();
    while let Some(event) = answers.next().await {
        let (_, event) = event.map_err(renamed)?;
        writer.push(event);
    }
    let Writer {
        mut response,
        output,
        ..
    } = writer;
    response.finish(output, answers.usage());
    json(&app, response, answers.into_reservation()).await
}

/// A value as JSON.
fn written(value: &impl Serialize) -> Result<Box<RawValue>, ApiError> {
    to_raw_value(value).map_err(|error| ApiError::internal(error.to_string()))
}

/// Renames the field of an error from shared code to this API's field.
fn renamed(error: ApiError) -> ApiError {
    error.renamed(|field| match field {
        "messages" => Some("input".to_owned()),
        "max_tokens" => Some("max_output_tokens".to_owned()),
        "response_format" => Some("text.format".to_owned()),
        // Such as `tools[0].function.name`.
        field if field.starts_with("tools[") => Some(field.replacen(".function.", ".", 1)),
        _ => None,
    })
}

impl Responses {
    /// Rejects an empty input.
    fn check(&self) -> Result<(), ApiError> {
        match self.input.is_empty() {
            true => Err(ApiError::field("input", "must not be empty")),
            false => Ok(()),
        }
    }

    /// Takes the conversation out of the request: the instructions and the input.
    fn messages(&mut self) -> Result<Vec<Object<Message>>, ApiError> {
        let system = self.instructions.clone();
        let system = system.map(|text| Object::new(Message::of_text("system", text)));
        let input = std::mem::take(&mut self.input).into_messages()?;
        Ok(system.into_iter().chain(input).collect())
    }

    /// The number of alternatives per token, if log-probabilities are requested.
    fn logprobs(&self) -> Result<Option<usize>, ApiError> {
        let mut included = self.include.iter().flatten();
        let requested = included.any(|addition| matches!(addition, Included::Logprobs));
        match self.top_logprobs {
            Some(count) if count > MOST_ALTERNATIVES => {
                let rule = format!("must be at most {MOST_ALTERNATIVES}");
                Err(ApiError::field("top_logprobs", rule))
            }
            Some(1..) if !requested => {
                let rule = "needs \"include\": [\"message.output_text.logprobs\"]";
                Err(ApiError::field("top_logprobs", rule))
            }
            count => Ok(requested.then_some(count.unwrap_or(0))),
        }
    }

    fn form(&self) -> Result<Option<TextForm>, ApiError> {
        let format = self.text.as_ref().and_then(|text| text.0.format.as_ref());
        let schema = match format.map(|format| &format.0) {
            None | Some(TextFormat::Text {}) => return Ok(None),
            Some(TextFormat::JsonObject {}) => None,
            Some(TextFormat::JsonSchema { schema, .. }) => Some(schema),
        };
        Ok(Some(TextForm {
            field: "text.format",
            grammar: json_grammar(schema)?,
        }))
    }
}
