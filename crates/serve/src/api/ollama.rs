//! Ollama's API: `/api/chat`, `/api/generate`, `/api/embed` and the requests about models.
//!
//! | file | content |
//! |---|---|
//! | `options` | `options`, `format` and `think` of requests |
//! | `messages` | messages of conversations, whose calls may have no identifiers |
//! | `answer` | answers, as one object or as lines of JSON |
//! | `embed` | embeddings |
//! | `models` | the served models |
//! | `error` | errors in Ollama's form |

mod answer;
mod embed;
mod error;
mod messages;
mod models;
mod options;

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use axum::response::Response;
use emberlm_generate::Chooser;
use schemars::JsonSchema;
use serde::Deserialize;

use super::answer_parts::AnswerForm;
use super::answer_stream::{JsonLine, StreamItem, streamed};
use super::answers::AnswerRequest;
use super::body::{FieldGroup, KnownFields, Object};
use super::bounds::Kept;
use super::conversation::{
    CallChoice, ConversationRequest, EncodedPrompt, Message, TemplateOptions, Tool,
};
use super::error::ApiError;
use super::fields;
use super::generation::Generation;
use super::json::json;
use super::model_request::ModelRequest;
use super::prompt::{Prompt, TooLong};
use super::settings::{Settings, TextForm};
use crate::limits::{MOST_ALTERNATIVES, MOST_TOOLS};
use crate::model::{ServedModel, Task};
pub(crate) use answer::{ChatAnswer, GenerateAnswer};
use answer::{Content, Writer};
pub(crate) use embed::{Embed, EmbedOne, Embedded, EmbeddedOne, embed, embed_one};
pub(crate) use error::{OllamaError, in_its_form};
use messages::{ChatMessage, into_messages};
pub(crate) use models::{
    Pull, Pulled, Running, Show, Shown, Tags, Version, ps, pull, show, tags, version,
};
use options::{Format, KeepAlive, Options, Think};

/// The fields of requests for text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaRequest")]
pub(crate) struct TextRequest {
    /// The name or an alias of the model; `:latest` after it has no effect.
    model: String,
    /// False to send the answer as one object. Otherwise it is sent while it is generated, as lines of JSON.
    #[schemars(extend("default" = true))]
    stream: Option<bool>,
    /// The form of the answer's text.
    format: Option<Format>,
    /// Settings of the generation. Those that are not there are the model's own.
    options: Option<Options>,
    /// True or false to switch the model's reasoning on or off, or an effort such as `low`, where its template has a switch or a
    /// variable for it. False also leaves the reasoning out of the answer.
    think: Option<Think>,
    /// Has no effect: models stay in memory until it is needed.
    #[allow(dead_code)]
    keep_alive: Option<KeepAlive>,
    /// True to return the log-probabilities of the tokens.
    #[schemars(extend("default" = false))]
    logprobs: Option<bool>,
    /// The number of alternatives per token that are also returned; requires `logprobs`.
    #[schemars(range(min = 0, max = MOST_ALTERNATIVES), extend("default" = 0))]
    top_logprobs: Option<usize>,
}

/// The fields that only requests for chats have.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaChat")]
pub(crate) struct Chat {
    /// The conversation so far. Without messages, the answer is empty: the model is there.
    messages: Option<Vec<Object<ChatMessage>>>,
    /// The functions that the answer may call.
    #[schemars(length(max = MOST_TOOLS))]
    tools: Option<Vec<Object<Tool>>>,
}

/// The fields that only requests for generated text have.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "OllamaGenerate")]
pub(crate) struct Generate {
    /// The user's message, or the text to continue if `raw` is true or the model has no chat template. Without it, the answer
    /// is empty: the model is there.
    prompt: Option<String>,
    /// A system message before the prompt.
    system: Option<String>,
    /// True to continue the prompt as it is, without the model's chat template.
    #[schemars(extend("default" = false))]
    raw: Option<bool>,
}

impl FieldGroup for TextRequest {}
impl FieldGroup for Chat {}
impl FieldGroup for Generate {}

static CHAT: LazyLock<KnownFields<(TextRequest, Chat)>> =
    LazyLock::new(|| KnownFields::new(&fields::OLLAMA_CHAT));
static GENERATE: LazyLock<KnownFields<(TextRequest, Generate)>> =
    LazyLock::new(|| KnownFields::new(&fields::OLLAMA_GENERATE));

/// Handles a request for an answer to a conversation.
pub(crate) async fn chat(mut request: ModelRequest) -> Result<Response, ApiError> {
    let (fields, chat) = request.read(&CHAT).await?;
    let asked = Asked::new(&request, fields)?;
    let messages = into_messages(chat.messages.unwrap_or_default());
    if messages.is_empty() {
        return asked.present(request, Content::Message).await;
    }
    let tools = chat.tools.unwrap_or_default();
    let prepared = asked.conversation(messages, tools)?;
    let prepared = prepared.prepare(&request, &asked.model).await;
    let prepared = prepared.map_err(options::renamed)?;
    asked.answer(request, prepared, Content::Message).await
}

/// Handles a request for a text.
pub(crate) async fn generate(mut request: ModelRequest) -> Result<Response, ApiError> {
    let (fields, generate) = request.read(&GENERATE).await?;
    let asked = Asked::new(&request, fields)?;
    let Some(prompt) = generate.prompt.filter(|prompt| !prompt.is_empty()) else {
        return asked.present(request, Content::Response).await;
    };
    let prepared = match generate.raw == Some(true) || asked.model.chat.is_none() {
        true => {
            if generate.system.is_some() {
                let rule = "needs a chat template, and a request without \"raw\": true";
                return Err(ApiError::field("system", rule));
            }
            asked.text(&request, prompt).await
        }
        false => {
            let system = generate.system.map(|text| Message::of_text("system", text));
            let messages = system.into_iter().chain([Message::of_text("user", prompt)]);
            let messages = messages.map(Object::new).collect();
            let prepared = asked.conversation(messages, Vec::new())?;
            prepared.prepare(&request, &asked.model).await
        }
    };
    let prepared = prepared.map_err(options::renamed)?;
    asked.answer(request, prepared, Content::Response).await
}

/// A request for text.
struct Asked {
    model: Arc<ServedModel>,
    fields: TextRequest,
    settings: Settings,
    start: Instant,
}

impl Asked {
    fn new(request: &ModelRequest, mut fields: TextRequest) -> Result<Self, ApiError> {
        let start = Instant::now();
        let model = request.model(
            models::without_tag(&request.app, &fields.model),
            Task::Generation,
        )?;
        let Options(settings) = fields.options.take().unwrap_or_default();
        let alternatives = fields.top_logprobs.unwrap_or(0);
        if alternatives > MOST_ALTERNATIVES {
            let rule = format!("must be at most {MOST_ALTERNATIVES}");
            return Err(ApiError::field("top_logprobs", rule));
        }
        if alternatives > 0 && fields.logprobs != Some(true) {
            return Err(ApiError::field("top_logprobs", "needs \"logprobs\": true"));
        }
        Ok(Self {
            model,
            fields,
            settings,
            start,
        })
    }

    /// The number of alternatives, if log-probabilities are requested.
    fn top_logprobs(&self) -> Option<usize> {
        let is_requested = self.fields.logprobs == Some(true);
        is_requested.then(|| self.fields.top_logprobs.unwrap_or(0))
    }

    /// The form of the text.
    fn form(&self) -> Result<Option<TextForm>, ApiError> {
        let form = self.fields.format.as_ref().map(Format::form);
        Ok(form.transpose()?.flatten())
    }

    fn conversation(
        &self,
        messages: Vec<Object<Message>>,
        tools: Vec<Object<Tool>>,
    ) -> Result<ConversationRequest<'_>, ApiError> {
        let mut template = TemplateOptions::default();
        if let Some(think) = &self.fields.think {
            think.apply(&mut template);
        }
        Ok(ConversationRequest {
            messages,
            tools,
            choice: CallChoice::Auto,
            parallel: true,
            template,
            settings: &self.settings,
            max_tokens: None,
            top_logprobs: self.top_logprobs(),
            form: self.form()?,
            samples: 1,
        })
    }

    /// A text to continue.
    async fn text(
        &self,
        request: &ModelRequest,
        prompt: String,
    ) -> Result<(AnswerRequest, AnswerForm), ApiError> {
        let (app, model) = (&request.app, &self.model);
        let prompt = Prompt::Text(prompt).tokens("prompt", model, app, TooLong::Refused);
        let encoded = EncodedPrompt::text(prompt.await?.concat());
        let generation = Generation {
            top_logprobs: self.top_logprobs(),
            form: self.form()?,
            ..Generation::new(&self.settings)
        };
        let answer_request = generation.request(app, model, encoded, 1).await?;
        Ok((answer_request, AnswerForm::default()))
    }

    fn writer(&self, form: AnswerForm, content: Content) -> Writer {
        Writer::new(
            Arc::clone(&self.model),
            form,
            answer::Requested {
                content,
                start: self.start,
                omits_thinking: self.fields.think.as_ref().is_some_and(Think::is_off),
                logprobs: self.fields.logprobs == Some(true),
            },
        )
    }

    fn streams(&self) -> bool {
        self.fields.stream != Some(false)
    }

    /// Checks the settings of a request that generates nothing.
    async fn check(&self, request: &ModelRequest) -> Result<(), ApiError> {
        let generation = Generation {
            form: self.form()?,
            ..Generation::new(&self.settings)
        };
        let prompt = EncodedPrompt::default();
        let answer_request = generation.request(&request.app, &self.model, prompt, 1);
        let chooser = answer_request.await?.chooser;
        let vocab_size = self.model.worker.sizes().vocab_size;
        Chooser::new(&chooser, &[], vocab_size, 0)?;
        Ok(())
    }

    /// Answers a request without a prompt: clients send it to load a model.
    async fn present(self, request: ModelRequest, content: Content) -> Result<Response, ApiError> {
        self.check(&request).await.map_err(options::renamed)?;
        let mut writer = self.writer(AnswerForm::default(), content);
        let loaded = writer.loaded();
        match self.streams() {
            true => {
                let line = JsonLine::new(&loaded);
                Ok(JsonLine::response(futures_util::stream::iter([Ok(line)])))
            }
            false => json(&request.app, loaded, request.account).await,
        }
    }

    async fn answer(
        self,
        request: ModelRequest,
        (answer_request, form): (AnswerRequest, AnswerForm),
        content: Content,
    ) -> Result<Response, ApiError> {
        let (mut writer, streams) = (self.writer(form, content), self.streams());
        let model = Arc::clone(&self.model);
        drop(self);
        let kept = Kept {
            streams,
            ..Kept::default()
        };
        let (app, deadline) = (request.app.clone(), request.deadline);
        let answers = request.begin(&model, vec![answer_request], kept);
        let mut answers = answers.await.map_err(options::renamed)?;
        if streams {
            return Ok(streamed(deadline, answers, writer));
        }
        while let Some(event) = answers.next().await {
            let (_, event) = event.map_err(options::renamed)?;
            writer.push(&event);
        }
        let answer = writer.whole(answers.usage());
        json(&app, answer, answers.into_reservation()).await
    }
}
