//! The answers to a request as they are generated: decodes tokens to text and ends answers at stop strings.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use emberlm_generate::{ChooserConfig, Chosen, EventKind, Finish, Overflow, Request};
use emberlm_tokenizer::{StopStrings, TextStream};
use schemars::JsonSchema;
use serde::Serialize;

use super::App;
use super::bounds::Kept;
use super::delivery::Usage;
use super::error::ApiError;
use crate::memory::Reservation;
use crate::metrics::RequestTimer;
use crate::model::{ServedKind, ServedModel};
use crate::request_log::Trace;
use crate::worker::Ticket;

/// A prompt to continue.
#[derive(Clone)]
pub(crate) struct AnswerRequest {
    pub prompt: Vec<u32>,
    pub samples: usize,
    /// The maximum number of new tokens. If `None`, the limit is that of the model's
    /// `generation_config.json`, or else the rest of the context, both capped by the server's limit.
    pub max_tokens: Option<usize>,
    pub stops: StopStrings,
    /// Ids that end the answer.
    pub stop_tokens: Vec<u32>,
    pub chooser: ChooserConfig,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FinishReason {
    /// The end: a token that ends texts, a stop string, or a constraint after which nothing may follow.
    Stop,
    /// As many tokens as were allowed.
    Length,
}

/// A token of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub chosen: Chosen,
    /// The text that this token completes, including stop strings.
    pub text: String,
}

/// A delta of an answer.
#[derive(Clone, Debug)]
pub(crate) struct AnswerEvent {
    pub sample: usize,
    /// Text that can be shown now.
    pub text: String,
    /// The index of the stop string that ended the answer.
    pub stop: Option<usize>,
    /// The token; `None` for the final event.
    pub token: Option<Token>,
    pub finish: Option<FinishReason>,
}

/// The answers to one prompt. Dropping this cancels their generation.
struct PromptAnswers {
    ticket: Ticket,
    samples: Vec<SampleText>,
    /// The number of unfinished samples.
    left: usize,
    timer: RequestTimer,
    trace: Arc<Trace>,
    prompt_tokens: usize,
    /// Generated tokens of all samples.
    made_tokens: usize,
    /// Prompt tokens that were found in a cache.
    reused_tokens: usize,
}

/// The text of one sample so far.
struct SampleText {
    /// The decoder of the text; `None` once the sample has ended.
    stream: Option<TextStream>,
    last: Option<Instant>,
}

impl PromptAnswers {
    async fn begin(
        app: &App,
        model: &Arc<ServedModel>,
        trace: &Arc<Trace>,
        answer_request: AnswerRequest,
        max_new_tokens: usize,
    ) -> Result<Self, ApiError> {
        let prompt_tokens = answer_request.prompt.len();
        trace.add_prompt(prompt_tokens);
        let stream = TextStream::after(
            &model.tokenizer,
            model.before_answer(&answer_request.prompt),
            answer_request.stops,
        );
        let text = || SampleText {
            stream: Some(stream.clone()),
            last: None,
        };
        let samples = (0..answer_request.samples).map(|_| text()).collect();
        let timer = app.metrics().timer(&model.name);
        let request = Request {
            prompt: answer_request.prompt,
            samples: answer_request.samples,
            max_new_tokens,
            stop_tokens: answer_request.stop_tokens,
            chooser: answer_request.chooser,
            overflow: Overflow::Refuse,
            // The worker's handle selects it.
            adapter: None,
        };
        let ticket = model.worker.submit(request).await?;
        Ok(Self {
            ticket,
            samples,
            left: answer_request.samples,
            timer,
            trace: Arc::clone(trace),
            prompt_tokens,
            made_tokens: 0,
            reused_tokens: 0,
        })
    }

    /// The next event. `None` once all samples have ended.
    fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<AnswerEvent, ApiError>>> {
        while self.left > 0 {
            let Some((sample, kind)) = ready!(self.ticket.poll_next(context)) else {
                self.left = 0;
                return Poll::Ready(Some(Err(self.ticket.failure().into())));
            };
            let event = match kind {
                EventKind::Token(chosen) => self.token(sample, chosen),
                EventKind::Finished(ended) => {
                    self.reused_tokens = self.reused_tokens.max(ended.reused_prompt);
                    self.finish(sample, ended.finish)
                }
                EventKind::Failed(error) => {
                    self.left = 0;
                    return Poll::Ready(Some(Err(error.into())));
                }
                EventKind::Started => {
                    self.timer.started();
                    self.trace.started();
                    None
                }
                EventKind::Embedded(_) => None,
            };
            if let Some(event) = event {
                return Poll::Ready(Some(Ok(event)));
            }
        }
        Poll::Ready(None)
    }

    fn token(&mut self, sample: usize, chosen: Chosen) -> Option<AnswerEvent> {
        let text = self.samples.get_mut(sample)?;
        // Tokens can still arrive after a sample has ended, until the engine processes the cancellation.
        let delta = text.stream.as_mut()?.push(chosen.id);
        self.made_tokens += 1;
        self.trace.add_completion(1);
        self.timer.token(&mut text.last);
        if delta.stop.is_some() {
            self.ticket.cancel_sample(sample);
            text.stream = None;
            self.left -= 1;
        }
        Some(AnswerEvent {
            sample,
            text: delta.visible,
            token: Some(Token {
                chosen,
                text: delta.decoded,
            }),
            stop: delta.stop,
            finish: delta.stop.map(|_| FinishReason::Stop),
        })
    }

    fn finish(&mut self, sample: usize, finish: Finish) -> Option<AnswerEvent> {
        let stream = self.samples.get_mut(sample)?.stream.take()?;
        self.left -= 1;
        let rest = stream.finish();
        let reason = match finish {
            Finish::Length if rest.stop.is_none() => FinishReason::Length,
            _ => FinishReason::Stop,
        };
        Some(AnswerEvent {
            sample,
            text: rest.visible,
            stop: rest.stop,
            token: None,
            finish: Some(reason),
        })
    }
}

/// The answers to a request, which may have several prompts.
pub(crate) struct Answers {
    prompts: Vec<PromptAnswers>,
    /// The prompt to poll first; rotates for fairness.
    first: usize,
    reservation: Reservation,
}

impl Answers {
    /// Starts answering all prompts concurrently, after adding the memory described by `kept` to the request's account.
    ///
    /// # Errors
    /// If one prompt is rejected, none is answered.
    pub async fn begin(
        app: &App,
        model: &Arc<ServedModel>,
        trace: &Arc<Trace>,
        answer_requests: Vec<AnswerRequest>,
        kept: Kept,
        mut account: Reservation,
    ) -> Result<Self, ApiError> {
        let mut bytes = 0usize;
        let mut max_new_tokens = Vec::with_capacity(answer_requests.len());
        for answer_request in &answer_requests {
            let tokens = max_tokens(app, model, answer_request)?;
            max_new_tokens.push(tokens);
            bytes = bytes.saturating_add(kept.bytes(
                answer_request,
                tokens,
                model.worker.sizes().vocab_size,
            ));
        }
        account.add(bytes)?;
        let mut prompts = Vec::with_capacity(answer_requests.len());
        for (answer_request, tokens) in answer_requests.into_iter().zip(max_new_tokens) {
            prompts.push(PromptAnswers::begin(app, model, trace, answer_request, tokens).await?);
        }
        Ok(Self {
            prompts,
            first: 0,
            reservation: account,
        })
    }

    /// The next event and the index of its prompt. `None` once all answers have ended.
    pub async fn next(&mut self) -> Option<Result<(usize, AnswerEvent), ApiError>> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<(usize, AnswerEvent), ApiError>>> {
        let count = self.prompts.len();
        let mut waits = false;
        for offset in 0..count {
            let at = (self.first + offset) % count;
            match self.prompts[at].poll_next(context) {
                Poll::Pending => waits = true,
                Poll::Ready(None) => {}
                Poll::Ready(Some(event)) => {
                    self.first = (at + 1) % count;
                    return Poll::Ready(Some(event.map(|event| (at, event))));
                }
            }
        }
        match waits {
            true => Poll::Pending,
            false => Poll::Ready(None),
        }
    }

    /// The token counts so far.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for prompt in &self.prompts {
            usage.add(
                prompt.prompt_tokens,
                prompt.made_tokens,
                prompt.reused_tokens,
            );
        }
        usage
    }

    /// The memory reservation, for use until the response is written.
    pub fn into_reservation(self) -> Reservation {
        self.reservation
    }
}

/// The maximum number of new tokens of an answer.
///
/// # Errors
/// The requested number exceeds the server's limit, or the context has no room.
fn max_tokens(
    app: &App,
    model: &ServedModel,
    answer_request: &AnswerRequest,
) -> Result<usize, ApiError> {
    let limit = app.limits().tokens;
    let context = model.worker.limits().context;
    let room = model.room(answer_request.prompt.len());
    let tokens = match answer_request.max_tokens {
        Some(tokens) if tokens > limit => {
            let rule = format!("must be at most {limit}, this server's limit");
            return Err(ApiError::field("max_tokens", rule));
        }
        Some(tokens) => tokens,
        None => {
            let most = model.sampling.max_new_tokens.unwrap_or(room);
            most.min(room.max(1)).min(limit)
        }
    };
    let prompt = answer_request.prompt.len();
    // The engine would refuse it too, but after work in proportion to its length.
    let new = match model.kind {
        ServedKind::Decoder { .. } => tokens,
        ServedKind::Encoder(_) | ServedKind::EncoderDecoder(_) => 0,
    };
    match prompt.saturating_add(new) > context {
        true => Err(ApiError::context(prompt, new, context)),
        false => Ok(tokens),
    }
}
