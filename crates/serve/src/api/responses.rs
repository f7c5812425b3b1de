//! `POST /v1/responses`: OpenAI's Responses API, for what it has in common with chat completions.
//!
//! Nothing is stored: what would need an earlier response, a stored prompt or a conversation is refused by name.

mod events;
mod input;
mod response;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::response::Response;
use emberlm_generate::Grammar;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::App;
use super::answers::{Answers, Ask};
use super::body::{Body, Fields, Object, schema};
use super::chat::{render, tagged};
use super::deadline::Deadline;
use super::delivery::{now, seed, streamed};
use super::error::ApiError;
use super::memory::{self, Kept};
use super::settings::{Settings, constrained, json_grammar};
use crate::request_log::Trace;
use events::Writer;
use input::{Input, Written};
pub(crate) use response::ResponseBody;
use response::id;

/// The fields beside [`Settings`].
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Responses {
    /// The model's name.
    model: String,
    /// The user's message, or the conversation so far.
    input: Input,
    /// A system message before the input.
    instructions: Option<String>,
    /// Tokens that are generated at most; it goes before `max_tokens`.
    #[schemars(range(min = 0, max = u32::MAX))]
    max_output_tokens: Option<u32>,
    /// The form of the answer's text.
    text: Option<Object<TextConfig>>,
    /// Whether the answer comes as it is generated, as server-sent events.
    stream: Option<bool>,
    /// Has no effect.
    #[allow(dead_code)]
    stream_options: Option<Object<StreamOptions>>,
    /// Returned with the answer; it has no other effect.
    metadata: Option<BTreeMap<String, Value>>,
    /// Has no effect.
    #[allow(dead_code)]
    user: Option<String>,
    /// Has no effect: no tool is called.
    #[allow(dead_code)]
    parallel_tool_calls: Option<bool>,
    /// Has no effect: an input that is too long for the context is refused.
    #[allow(dead_code)]
    truncation: Option<Truncation>,
    /// Must be false: nothing is stored.
    #[schemars(extend("enum" = [false, null]))]
    store: Option<bool>,
    /// Must be false: a response is generated while the client waits.
    #[schemars(extend("enum" = [false, null]))]
    background: Option<bool>,
    /// Must be empty: functions are called by `/v1/chat/completions` only.
    #[schemars(length(max = 0))]
    tools: Option<Vec<Value>>,
    /// Must be empty.
    #[schemars(length(max = 0))]
    include: Option<Vec<Value>>,
    /// Not supported.
    #[serde(default)]
    #[schemars(with = "()")]
    previous_response_id: Option<Value>,
    /// Not supported.
    #[serde(default)]
    #[schemars(with = "()")]
    conversation: Option<Value>,
    /// Not supported.
    #[serde(default)]
    #[schemars(with = "()")]
    prompt: Option<Value>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Truncation {
    Disabled,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct StreamOptions {
    /// Has no effect: no event is padded.
    #[allow(dead_code)]
    include_obfuscation: Option<bool>,
}

/// The form of the answer's text.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TextConfig {
    #[serde(deserialize_with = "tagged")]
    format: Option<TextFormat>,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum TextFormat {
    /// Any text.
    Text {},
    /// Any JSON object.
    JsonObject {},
    /// JSON that a schema describes.
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

/// The schemas of the fields that these requests may have.
pub(crate) fn schemas() -> [Value; 2] {
    [schema::<Responses>(), schema::<Settings>()]
}

/// Answers.
pub(crate) async fn answer(
    State(app): State<App>,
    Extension(deadline): Extension<Deadline>,
    Extension(trace): Extension<Arc<Trace>>,
    Body(body): Body,
) -> Result<Response, ApiError> {
    let body_bytes = body.len();
    let (mut asked, settings) = read(&app, body)?;
    asked.check()?;
    let model = app.model(&asked.model)?;
    trace.set_model(&model);
    let streams = asked.stream == Some(true);
    let record = json!({ "messages": asked.messages() }).to_string();
    let opened = render(&model, record).await.map_err(renamed)?;
    let mut chooser = settings.chooser(model.sampling, seed())?;
    let grammar = match (asked.grammar()?, settings.grammar()?) {
        (Some(_), Some(_)) => {
            let rule = "cannot be combined with structured_outputs";
            return Err(ApiError::field("text.format", rule));
        }
        (one, other) => one.or(other),
    };
    let constraint = constrained(&model, &mut chooser, grammar).await;
    constraint.map_err(renamed)?;
    let sampler = chooser.sampler;
    let ask = Ask {
        prompt: opened.prompt,
        samples: 1,
        max_tokens: match asked.max_output_tokens {
            Some(tokens) => Some(tokens as usize),
            None => settings.max_tokens(),
        },
        stops: settings.stops(&opened.stop_strings)?,
        stop_tokens: opened.stop_tokens,
        chooser,
    };
    let kept = Kept {
        streams,
        // A stream's last events have the whole text each, and its first and last ones what is returned of the request.
        repeats: if streams { 4 } else { 0 },
        returned: body_bytes * if streams { 5 } else { 2 },
        ..Kept::default()
    };
    let mut answers = Answers::begin(&app, &model, &trace, vec![ask], kept)
        .await
        .map_err(renamed)?;
    let mut response = ResponseBody {
        id: id("resp"),
        created_at: now(),
        instructions: asked.instructions.take(),
        max_output_tokens: asked.max_output_tokens,
        metadata: asked.metadata.take().unwrap_or_default(),
        model: model.name.clone(),
        temperature: sampler.temperature,
        top_p: sampler.top_p,
        text: asked.text.take().map(|text| text.0).unwrap_or_default(),
        ..ResponseBody::default()
    };
    drop((asked, settings));
    if streams {
        let writer = Writer::new(response);
        let late = writer.failure(deadline.error());
        return Ok(streamed(deadline, late, move |pieces| async move {
            // It ends when the client has left.
            let _ = writer.stream(answers, &pieces).await;
        }));
    }
    let (mut text, mut finish) = (String::new(), None);
    while let Some(event) = answers.next().await {
        let (_, event) = event.map_err(renamed)?;
        text += &event.text;
        finish = event.finish.or(finish);
    }
    response.finish(id("msg"), text, finish, answers.usage());
    Ok(memory::json(&response, answers.into_reservation()))
}

/// The fields of a request, which keep nothing of its body.
fn read(app: &App, body: Bytes) -> Result<(Responses, Settings), ApiError> {
    let fields = Fields::new(&body)?;
    let read = (fields.take()?, fields.take()?);
    fields.check_known(&app.schemas().responses)?;
    Ok(read)
}

/// An error of what is shared with chat completions, with this API's names of fields.
fn renamed(error: ApiError) -> ApiError {
    error
        .renamed("messages", "input")
        .renamed("max_tokens", "max_output_tokens")
        .renamed("response_format", "text.format")
}

impl Responses {
    /// Refuses an empty input, and what would need a server that stores responses or calls tools.
    fn check(&self) -> Result<(), ApiError> {
        const NOT_STORED: &str =
            "is not supported: no response is stored; send the conversation so far as input";
        let is_some = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
        let is_full = |list: &Option<Vec<Value>>| list.as_ref().is_some_and(|all| !all.is_empty());
        let refused = [
            (
                "previous_response_id",
                is_some(&self.previous_response_id),
                NOT_STORED,
            ),
            ("conversation", is_some(&self.conversation), NOT_STORED),
            (
                "prompt",
                is_some(&self.prompt),
                "is not supported: no prompt is stored; send it as instructions and input",
            ),
            (
                "store",
                self.store == Some(true),
                "must be false: no response is stored",
            ),
            (
                "background",
                self.background == Some(true),
                "must be false: a response is generated while the client waits",
            ),
            (
                "tools",
                is_full(&self.tools),
                "must be empty: functions are called by /v1/chat/completions",
            ),
            ("include", is_full(&self.include), "must be empty"),
            ("input", self.input.is_empty(), "must not be empty"),
        ];
        match refused.into_iter().find(|(_, asked, _)| *asked) {
            Some((field, _, rule)) => Err(ApiError::field(field, rule)),
            None => Ok(()),
        }
    }

    /// The conversation: the instructions and the input.
    fn messages(&self) -> Vec<Written<'_>> {
        let instructions = self.instructions.as_deref().map(Written::system);
        instructions
            .into_iter()
            .chain(self.input.messages())
            .collect()
    }

    fn grammar(&self) -> Result<Option<Grammar>, ApiError> {
        let format = self.text.as_ref().and_then(|text| text.0.format.as_ref());
        Ok(match format {
            None | Some(TextFormat::Text {}) => None,
            Some(TextFormat::JsonObject {}) => {
                let any = BTreeMap::from([("type".to_owned(), json!("object"))]);
                Some(json_grammar(&any)?)
            }
            Some(TextFormat::JsonSchema { schema, .. }) => Some(json_grammar(schema)?),
        })
    }
}
