//! An answer as it is made: tokens become text, text ends where it is to.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use emberlm_generate::{ChooserConfig, Chosen, Finish, Overflow, Request, StopStrings};
use futures_util::future::select_all;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::{Sleep, sleep};

use super::App;
use super::delivery::Usage;
use super::error::ApiError;
use crate::metrics::Watch;
use crate::model::ServedModel;
use crate::readable::Readable;
use crate::worker::{Ticket, Told};

/// What is to be answered.
pub(crate) struct Ask {
    pub prompt: Vec<u32>,
    pub samples: usize,
    /// Tokens at most; what the context has room for, within the server's limit, where that is not said.
    pub max_tokens: Option<usize>,
    pub stops: StopStrings,
    /// Ids that end the answer, beside the model's.
    pub stop_tokens: Vec<u32>,
    pub chooser: ChooserConfig,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FinishReason {
    /// It came to its end: by a token that ends texts, by a text that was to end it, or since nothing may follow.
    Stop,
    /// As many tokens as were allowed.
    Length,
}

/// A token of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub chosen: Chosen,
    /// What became readable by it, stop strings or not.
    pub text: String,
}

/// The next of what an answer says.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub sample: usize,
    /// What may be shown now.
    pub text: String,
    /// None at the end.
    pub token: Option<Token>,
    pub finish: Option<FinishReason>,
}

/// An answer as it is made. It ends where it is dropped.
pub(crate) struct Speech {
    ticket: Ticket,
    voices: Vec<Voice>,
    /// Samples that have not ended.
    left: usize,
    deadline: Pin<Box<Sleep>>,
    time: Duration,
    watch: Watch,
    prompt_tokens: usize,
    /// Of all samples so far.
    made_tokens: usize,
    /// Tokens of the prompt that a cache held.
    reused_tokens: usize,
}

struct Voice {
    /// None once it has ended.
    readable: Option<Readable>,
    last: Option<Instant>,
}

impl Speech {
    /// Begins an answer: the engine has taken the request.
    ///
    /// # Errors
    /// What is asked for is not possible, or not now.
    pub async fn begin(app: &App, model: &Arc<ServedModel>, ask: Ask) -> Result<Self, ApiError> {
        let limits = app.limits();
        let prompt_tokens = ask.prompt.len();
        let context = model.worker.config().capacity;
        let room = context.saturating_sub(prompt_tokens);
        let max_new_tokens = match ask.max_tokens {
            Some(tokens) if tokens > limits.tokens => {
                let rule = format!("must be at most {}, this server's limit", limits.tokens);
                return Err(ApiError::field("max_tokens", rule));
            }
            Some(tokens) => tokens,
            None if room == 0 => return Err(ApiError::context(prompt_tokens, 1, context)),
            None => room.min(limits.tokens),
        };
        let readable = Readable::after(&model.tokenizer, &ask.prompt, ask.stops);
        let voice = || Voice {
            readable: Some(readable.clone()),
            last: None,
        };
        let voices = (0..ask.samples.min(model.worker.config().slots)).map(|_| voice());
        let voices = voices.collect();
        let watch = app.metrics().watch(&model.name);
        let request = Request {
            prompt: ask.prompt,
            samples: ask.samples,
            max_new_tokens,
            stop_tokens: [&model.stop_tokens[..], &ask.stop_tokens].concat(),
            chooser: ask.chooser,
            overflow: Overflow::Refuse,
        };
        let ticket = model.worker.submit(request).await?;
        Ok(Self {
            ticket,
            voices,
            left: ask.samples,
            deadline: Box::pin(sleep(limits.time)),
            time: limits.time,
            watch,
            prompt_tokens,
            made_tokens: 0,
            reused_tokens: 0,
        })
    }

    /// What is said next; none once all samples have ended.
    pub async fn next(&mut self) -> Option<Result<Said, ApiError>> {
        while self.left > 0 {
            let told = tokio::select! {
                told = self.ticket.next() => told,
                () = &mut self.deadline => {
                    self.left = 0;
                    return Some(Err(ApiError::timeout(self.time.as_secs())));
                }
            };
            let Some((sample, told)) = told else {
                self.left = 0;
                return Some(Err(ApiError::internal("the model's thread has ended")));
            };
            match told {
                Told::Token(chosen) => {
                    if let Some(said) = self.token(sample, chosen) {
                        return Some(Ok(said));
                    }
                }
                Told::Finished(ended) => {
                    self.reused_tokens = self.reused_tokens.max(ended.reused_prompt);
                    if let Some(said) = self.finish(sample, ended.finish) {
                        return Some(Ok(said));
                    }
                }
                Told::Failed(error) => {
                    self.left = 0;
                    return Some(Err(error.into()));
                }
            }
        }
        None
    }

    fn token(&mut self, sample: usize, chosen: Chosen) -> Option<Said> {
        let voice = self.voices.get_mut(sample)?;
        // One that has ended may have been told of a token before the engine heard of it.
        let piece = voice.readable.as_mut()?.push(chosen.id);
        self.made_tokens += 1;
        self.watch.token(&mut voice.last);
        if piece.stopped {
            self.ticket.cancel_sample(sample);
            voice.readable = None;
            self.left -= 1;
        }
        Some(Said {
            sample,
            text: piece.shown,
            token: Some(Token {
                chosen,
                text: piece.read,
            }),
            finish: piece.stopped.then_some(FinishReason::Stop),
        })
    }

    fn finish(&mut self, sample: usize, finish: Finish) -> Option<Said> {
        let readable = self.voices.get_mut(sample)?.readable.take()?;
        self.left -= 1;
        let rest = readable.finish();
        let reason = match finish {
            Finish::Length if !rest.stopped => FinishReason::Length,
            _ => FinishReason::Stop,
        };
        Some(Said {
            sample,
            text: rest.shown,
            token: None,
            finish: Some(reason),
        })
    }
}

/// Several answers at once: a request may have several prompts.
pub(crate) struct Chorus(Vec<Speech>);

impl Chorus {
    /// Begins them all; they run together.
    ///
    /// # Errors
    /// One cannot be begun: none is then.
    pub async fn begin(
        app: &App,
        model: &Arc<ServedModel>,
        asks: impl IntoIterator<Item = Ask>,
    ) -> Result<Self, ApiError> {
        let mut speeches = Vec::new();
        for ask in asks {
            speeches.push(Speech::begin(app, model, ask).await?);
        }
        Ok(Self(speeches))
    }

    /// What is said next, and by which; none once all have ended.
    pub async fn next(&mut self) -> Option<Result<(usize, Said), ApiError>> {
        loop {
            let speaking = self.0.iter_mut().enumerate();
            let speaking: Vec<_> = speaking
                .filter(|(_, speech)| speech.left > 0)
                .map(|(at, speech)| Box::pin(async move { (at, speech.next().await) }))
                .collect();
            if speaking.is_empty() {
                return None;
            }
            // The others have taken nothing.
            let ((at, said), ..) = select_all(speaking).await;
            if let Some(said) = said {
                return Some(said.map(|said| (at, said)));
            }
        }
    }

    /// How many tokens there were so far.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for speech in &self.0 {
            usage.add(
                speech.prompt_tokens,
                speech.made_tokens,
                speech.reused_tokens,
            );
        }
        usage
    }
}
