//! `POST /v1/completions`: texts that go on from others.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::response::sse::Event;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc::error::SendError;

use super::App;
use super::answers::{AnswerEvent, Answers, Ask, FinishReason, Token};
use super::body::{Body, Fields, schema};
use super::deadline::Deadline;
use super::delivery::{Delivery, Pieces, Usage, name, now, piece, seed, streamed};
use super::error::ApiError;
use super::memory::{Kept, json};
use super::prompt::Prompt;
use super::settings::{Settings, constrained};
use crate::model::ServedModel;
use crate::request_log::Trace;

/// The fields that only these requests have.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Completions {
    /// What is continued.
    prompt: Option<Prompt>,
    /// How many of the likeliest tokens are told, with their log-probabilities, for each token.
    #[schemars(range(min = 0, max = MOST_LOGPROBS))]
    logprobs: Option<usize>,
    /// Whether the answer begins with the prompt's text.
    echo: Option<bool>,
    /// Whether the tokens' ids are told.
    return_token_ids: Option<bool>,
}

/// The most that `logprobs` may be.
const MOST_LOGPROBS: usize = 5;
/// Tokens where a request does not say how many.
const DEFAULT_TOKENS: usize = 16;

/// An answer, or a piece of one.
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

/// For each token: its text, its log-probability, those of the likeliest in its place, and where in the text it begins.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
struct LogProbs {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f32>>,
    top_logprobs: Vec<BTreeMap<String, f32>>,
    text_offset: Vec<usize>,
}

/// Which fields these requests may have.
pub(crate) fn schemas() -> [Value; 3] {
    [
        schema::<Delivery>(),
        schema::<Completions>(),
        schema::<Settings>(),
    ]
}

/// Answers.
pub(crate) async fn answer(
    State(app): State<App>,
    Extension(deadline): Extension<Deadline>,
    Extension(trace): Extension<Arc<Trace>>,
    Body(body): Body,
) -> Result<Response, ApiError> {
    let (delivery, mut asked, settings) = read(&app, body)?;
    let model = app.model(&delivery.model)?;
    trace.set_model(&model);
    let samples = delivery.samples(&model)?;
    if asked.logprobs.is_some_and(|count| count > MOST_LOGPROBS) {
        return Err(ApiError::field(
            "logprobs",
            format!("must be at most {MOST_LOGPROBS}"),
        ));
    }
    let echo = asked.echo == Some(true);
    if echo && asked.logprobs.is_some() {
        let rule = "cannot be had together with logprobs: those of a prompt are not computed";
        return Err(ApiError::field("echo", rule));
    }
    let prompt = asked
        .prompt
        .take()
        .unwrap_or_else(|| Prompt::Text(String::new()));
    let prompts = prompt.tokens("prompt", &model, app.limits()).await?;
    let mut chooser = settings.chooser(model.sampling, seed())?;
    chooser.top_logprobs = asked.logprobs;
    constrained(&model, &mut chooser, settings.grammar()?).await?;
    let stops = settings.stops(&[])?;
    let count = prompts.len() * samples;
    let echoed = prompts.iter().take(if echo { prompts.len() } else { 0 });
    let echoed = echoed.map(|tokens| model.tokenizer.decode(tokens));
    let echoed: Result<Vec<String>, _> = echoed.collect();
    let echoed = echoed.map_err(|error| ApiError::field("prompt", error.to_string()))?;
    // The model's own default counts where it has one.
    let default_tokens = match model.sampling.max_new_tokens {
        Some(_) => None,
        None => Some(DEFAULT_TOKENS),
    };
    let asks = prompts.into_iter().map(|prompt| Ask {
        prompt,
        samples,
        max_tokens: settings.max_tokens().or(default_tokens),
        stops: stops.clone(),
        stop_tokens: Vec::new(),
        chooser: chooser.clone(),
    });
    let kept = Kept {
        streams: delivery.streams(),
        echoes: echo,
        ..Kept::default()
    };
    let mut answers = Answers::begin(&app, &model, &trace, asks.collect(), kept).await?;
    drop((settings, chooser, stops));
    // There is memory for as many from here on.
    let mut choices: Vec<Choice> = (0..count).map(Choice::new).collect();
    for (text, choices) in echoed.iter().zip(choices.chunks_mut(samples)) {
        choices.iter_mut().for_each(|c| c.text.clone_from(text));
    }
    let mut writer = Writer {
        id: name("cmpl"),
        created: now(),
        model,
        samples,
        logprobs: asked.logprobs.is_some(),
        ids: asked.return_token_ids == Some(true),
        offsets: vec![0; count],
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
                    .stream(answers, choices, &pieces, reports_usage)
                    .await;
            },
        ));
    }
    while let Some(event) = answers.next().await {
        let new = writer.choice(event?);
        choices[new.index].join(new);
    }
    let usage = answers.usage();
    let completion = writer.completion(choices, Some(usage));
    Ok(json(&completion, answers.into_reservation()))
}

/// The fields of a request, which keep nothing of its body.
fn read(app: &App, body: Bytes) -> Result<(Delivery, Completions, Settings), ApiError> {
    let fields = Fields::new(&body)?;
    let read = (fields.take()?, fields.take()?, fields.take()?);
    fields.check_known(&app.schemas().completions)?;
    Ok(read)
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
            let all = self.logprobs.get_or_insert_default();
            all.tokens.extend(next.tokens);
            all.token_logprobs.extend(next.token_logprobs);
            all.top_logprobs.extend(next.top_logprobs);
            all.text_offset.extend(next.text_offset);
        }
    }
}

/// Writes the answers of one request.
struct Writer {
    id: String,
    created: u64,
    model: Arc<ServedModel>,
    /// Answers to each prompt.
    samples: usize,
    logprobs: bool,
    ids: bool,
    /// How many characters each answer has.
    offsets: Vec<usize>,
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

    /// An event as a part of its answer.
    fn choice(&mut self, (prompt, event): (usize, AnswerEvent)) -> Choice {
        let index = prompt * self.samples + event.sample;
        let token = event.token.as_ref();
        let choice = Choice {
            index,
            text: event.text,
            logprobs: token
                .filter(|_| self.logprobs)
                .map(|token| self.told(token, self.offsets[index])),
            finish_reason: event.finish,
            token_ids: self
                .ids
                .then(|| token.iter().map(|token| token.chosen.id).collect()),
        };
        self.offsets[index] += token.map_or(0, |token| token.text.chars().count());
        choice
    }

    fn told(&self, token: &Token, offset: usize) -> LogProbs {
        let text = |id| String::from_utf8_lossy(&self.model.bytes(id)).into_owned();
        // Of tokens with the same text the likelier one is told.
        let likeliest = token.chosen.alternatives.iter().rev();
        let likeliest = likeliest.map(|&(id, logprob)| (text(id), logprob));
        LogProbs {
            tokens: vec![text(token.chosen.id)],
            token_logprobs: vec![token.chosen.logprob],
            top_logprobs: vec![likeliest.collect()],
            text_offset: vec![offset],
        }
    }

    /// Sends the answers as they are made.
    ///
    /// # Errors
    /// Nobody hears them.
    async fn stream(
        &mut self,
        mut answers: Answers,
        echoed: Vec<Choice>,
        pieces: &Pieces,
        reports_usage: bool,
    ) -> Result<(), SendError<Event>> {
        for choice in echoed.into_iter().filter(|choice| !choice.text.is_empty()) {
            pieces
                .send(piece(&self.completion(vec![choice], None)))
                .await?;
        }
        while let Some(event) = answers.next().await {
            match event {
                Ok(event) => {
                    let choice = self.choice(event);
                    pieces
                        .send(piece(&self.completion(vec![choice], None)))
                        .await?;
                }
                Err(error) => return pieces.send(piece(&error.answer())).await,
            }
        }
        if reports_usage {
            let usage = Some(answers.usage());
            pieces
                .send(piece(&self.completion(Vec::new(), usage)))
                .await?;
        }
        pieces.send(Event::default().data("[DONE]")).await
    }
}
