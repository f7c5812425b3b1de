//! `POST /v1/completions`: continuations of texts.

mod logprobs;

use std::mem;
use std::sync::{Arc, LazyLock};

use axum::response::Response;
use axum::response::sse::Event;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::App;
use super::answer_stream::{AnswerStream, done, json_event, streamed};
use super::answers::{AnswerEvent, AnswerRequest, FinishReason};
use super::body::{FieldGroup, KnownFields};
use super::bounds::Kept;
use super::conversation::EncodedPrompt;
use super::delivery::{Delivery, Usage, name, now};
use super::error::ApiError;
use super::fields;
use super::generation::Generation;
use super::json::json;
use super::model_request::ModelRequest;
use super::prompt::{Prompt, TooLong};
use super::settings::Settings;
use crate::model::{ServedModel, Task};
use logprobs::{Echo, LogProbs};

/// The fields that only these requests have.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Completions {
    /// The text or tokens to continue; the source of an encoder–decoder, whose answer is the target. Default: an empty text.
    prompt: Option<Prompt>,
    /// Returns the log-probabilities of the tokens and of this many alternatives, in the model's own distribution: before
    /// temperature and penalties. With `echo`, also those of the prompt's tokens, except for the first, and of the token that
    /// ends the answer.
    #[schemars(range(min = 0, max = MOST_LOGPROBS))]
    logprobs: Option<usize>,
    /// True to begin the answer with the prompt's text. `max_tokens` may be 0.
    #[schemars(extend("default" = false))]
    echo: Option<bool>,
    /// True to return the token ids.
    #[schemars(extend("default" = false))]
    return_token_ids: Option<bool>,
}

/// The upper bound of `logprobs`.
const MOST_LOGPROBS: usize = 5;
/// The default maximum of new tokens if neither the request nor the model sets one.
const DEFAULT_TOKENS: usize = 16;

/// An answer, or a chunk of one.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Completion {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    choices: Vec<Choice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
struct Choice {
    index: usize,
    text: String,
    logprobs: Option<LogProbs>,
    finish_reason: Option<FinishReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
}

impl FieldGroup for Completions {}

static FIELDS: LazyLock<KnownFields<(Delivery, Completions, Settings)>> =
    LazyLock::new(|| KnownFields::new(&fields::COMPLETIONS));

/// Handles the request.
pub(crate) async fn answer(mut request: ModelRequest) -> Result<Response, ApiError> {
    let (delivery, mut fields, settings) = request.read(&FIELDS).await?;
    let model = request.model(&delivery.model, Task::Generation)?;
    let (app, deadline) = (request.app.clone(), request.deadline);
    let samples = delivery.samples(&model)?;
    if fields.logprobs.is_some_and(|count| count > MOST_LOGPROBS) {
        let rule = format!("must be at most {MOST_LOGPROBS}");
        return Err(ApiError::field("logprobs", rule));
    }
    let echo = fields.echo == Some(true);
    if echo && !model.kind.supports(Task::Continuation) {
        let rule = "is not supported for this model: its answer does not continue the prompt";
        return Err(ApiError::field("echo", rule));
    }
    let prompt = fields.prompt.take();
    let prompt = prompt.unwrap_or_else(|| Prompt::Text(String::new()));
    let mut prompts = prompt
        .tokens("prompt", &model, &app, TooLong::Refused)
        .await?;
    let count = prompts.len() * samples;
    let mut echoed = Vec::new();
    if echo {
        (prompts, echoed) = decoded(&app, &model, prompts).await?;
    }
    // A default of the model takes precedence.
    let default_tokens = match model.sampling.max_new_tokens {
        Some(_) => None,
        None if settings.is_unlimited() => None,
        None => Some(DEFAULT_TOKENS),
    };
    let generation = Generation {
        max_tokens: settings.max_tokens()?.or(default_tokens),
        top_logprobs: fields.logprobs,
        scores_prompt: echo,
        ..Generation::new(&settings)
    };
    let first = EncodedPrompt::text(prompts.remove(0));
    let first = generation.request(&app, &model, first, samples).await?;
    let others: Vec<AnswerRequest> = prompts
        .into_iter()
        .map(|prompt| AnswerRequest {
            prompt,
            ..first.clone()
        })
        .collect();
    let answer_requests = std::iter::once(first).chain(others).collect();
    let kept = Kept {
        streams: delivery.streams(),
        echoes: echo,
        ..Kept::default()
    };
    drop(settings);
    let mut answers = request.begin(&model, answer_requests, kept).await?;
    // The reservation covers one choice per sample from here on.
    let mut choices: Vec<Choice> = (0..count).map(Choice::new).collect();
    for (text, choices) in echoed.iter().zip(choices.chunks_mut(samples)) {
        choices.iter_mut().for_each(|c| c.text.clone_from(text));
    }
    let logprobs = fields.logprobs.is_some();
    let offsets = choices.iter().map(|choice| choice.text.chars().count());
    let mut writer = Writer {
        id: name("cmpl"),
        created: now(),
        samples,
        logprobs,
        ids: fields.return_token_ids == Some(true),
        offsets: offsets.collect(),
        echoes: match echo && logprobs {
            true => choices.iter().map(|_| Echo::new(&model)).collect(),
            false => Vec::new(),
        },
        model,
        choices,
        reports_usage: delivery.reports_usage(),
    };
    if delivery.streams() {
        return Ok(streamed(deadline, answers, writer));
    }
    let mut choices = mem::take(&mut writer.choices);
    while let Some(event) = answers.next().await {
        let (prompt, event) = event?;
        let new = writer.choice(prompt, event);
        choices[new.index].join(new);
    }
    let usage = answers.usage();
    let completion = writer.completion(choices, Some(usage));
    json(&app, completion, answers.into_reservation()).await
}

/// The prompts and their texts.
async fn decoded(
    app: &App,
    model: &Arc<ServedModel>,
    prompts: Vec<Vec<u32>>,
) -> Result<(Vec<Vec<u32>>, Vec<String>), ApiError> {
    let model = Arc::clone(model);
    let bytes = prompts.iter().map(Vec::len).sum::<usize>() * size_of::<u32>();
    let decode = move || {
        let texts = prompts.iter().map(|ids| model.tokenizer.decode(ids));
        let texts = texts.collect::<Result<_, _>>();
        let texts = texts.map_err(|error| ApiError::field("prompt", error.to_string()))?;
        Ok((prompts, texts))
    };
    app.work(bytes, decode).await
}

impl Choice {
    fn new(index: usize) -> Self {
        Self {
            index,
            ..Self::default()
        }
    }

    fn join(&mut self, next: Self) {
        self.text += &next.text;
        self.finish_reason = next.finish_reason.or(self.finish_reason);
        if let Some(ids) = next.token_ids {
            self.token_ids.get_or_insert_default().extend(ids);
        }
        if let Some(next) = next.logprobs {
            self.logprobs.get_or_insert_default().extend(next);
        }
    }
}

/// Formats the answers to one request.
struct Writer {
    id: String,
    created: u64,
    model: Arc<ServedModel>,
    /// The number of answers per prompt.
    samples: usize,
    logprobs: bool,
    ids: bool,
    /// The number of characters of each answer so far.
    offsets: Vec<usize>,
    /// The prompts of the answers, if they are echoed with log-probabilities.
    echoes: Vec<Echo>,
    /// The initial choices. They contain the prompts if these are echoed.
    choices: Vec<Choice>,
    /// True if a stream ends with the token counts.
    reports_usage: bool,
}

impl Writer {
    fn completion(&self, choices: Vec<Choice>, usage: Option<Usage>) -> Completion {
        Completion {
            id: self.id.clone(),
            object: "text_completion",
            created: self.created,
            model: self.model.name.clone(),
            choices,
            usage,
        }
    }

    /// Converts an event to a delta of its choice.
    fn choice(&mut self, prompt: usize, event: AnswerEvent) -> Choice {
        let index = prompt * self.samples + event.sample;
        let token = event.token.as_ref();
        let (mut text, mut logprobs) = (event.text, None::<LogProbs>);
        if let (Some(tokens), Some(echo)) = (event.prompt, self.echoes.get_mut(index)) {
            // In a stream, the text comes with its first tokens.
            let echoed = self.choices.get_mut(index);
            text = echoed.map_or_else(String::new, |choice| mem::take(&mut choice.text));
            logprobs = Some(echo.logprobs(&self.model, &tokens));
        }
        // Clients expect a token of the answer after those of the prompt, even if it is the end.
        let end = event
            .stop_token
            .as_ref()
            .filter(|_| !self.echoes.is_empty());
        let chosen = token.map(|token| &token.chosen).or(end);
        if let Some(chosen) = chosen.filter(|_| self.logprobs) {
            let logprobs = logprobs.get_or_insert_default();
            logprobs.push(&self.model, chosen, self.offsets[index]);
        }
        let choice = Choice {
            index,
            text,
            logprobs,
            finish_reason: event.finish,
            token_ids: self
                .ids
                .then(|| token.iter().map(|token| token.chosen.id).collect()),
        };
        self.offsets[index] += token.map_or(0, |token| token.text.chars().count());
        choice
    }
}

impl AnswerStream for Writer {
    type Item = Event;

    fn begin(&mut self, _: Usage) -> Vec<Event> {
        if !self.echoes.is_empty() {
            return Vec::new();
        }
        let echoed = mem::take(&mut self.choices).into_iter();
        let echoed = echoed.filter(|choice| !choice.text.is_empty());
        echoed
            .map(|choice| json_event(&self.completion(vec![choice], None)))
            .collect()
    }

    fn next(&mut self, prompt: usize, event: AnswerEvent) -> Vec<Event> {
        let choice = self.choice(prompt, event);
        vec![json_event(&self.completion(vec![choice], None))]
    }

    fn end(&mut self, usage: Usage) -> Vec<Event> {
        let usage = self.reports_usage.then_some(usage);
        let usage = usage.map(|usage| json_event(&self.completion(Vec::new(), Some(usage))));
        usage.into_iter().chain([done()]).collect()
    }

    fn failure(self, error: ApiError) -> Event {
        json_event(&error.answer())
    }
}
