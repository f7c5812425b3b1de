//! Embeds and classifies the texts of concurrent requests with an encoder.
//!
//! A step is one pass, for vectors or for scores, of at most [`Embedder::PASS_TOKENS`] tokens without padding, unless a single text has more. A
//! request's texts are processed in the order of their lengths. Requests take turns to be first in a pass, and the texts
//! of the others fill it. So a request without concurrent ones has the passes of [`Embedder::embed_sequences`], and the
//! same numbers; with concurrent requests, products of other shapes may round differently.

use std::collections::VecDeque;
use std::convert::Infallible;

use emberlm_checkpoint::Embedder;
use emberlm_generate::{
    Counts, EmbeddingRequest, Event, EventKind, GenerateError, ModelSizes, RequestId, SettingError,
};
use emberlm_kernels::Backend;
use emberlm_model::InputError;
use emberlm_model::encoder::EncoderHeadConfig;
use emberlm_tokenizer::EncodedSequence;

use crate::worker_engine::{EngineLimits, SubmitError, Work, WorkerEngine};

/// The configuration of an embedding engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbeddingConfig {
    /// The longest text in tokens.
    pub context: usize,
    /// True to embed the texts of every request in separate passes, so that concurrent requests do not change a bit of
    /// its vectors.
    pub deterministic: bool,
}

/// Embeds texts with an encoder, or classifies them. The vectors have the model's pooling and normalization, and the scores are
/// those of [`Embedder::class_scores`].
#[derive(Debug)]
pub struct EmbeddingEngine<B: Backend> {
    embedder: Embedder<B>,
    config: EmbeddingConfig,
    waiting: VecDeque<WaitingTexts>,
    passes: u64,
    tokens: u64,
}

/// The result for each text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextOutput {
    Vector,
    Scores,
}

/// The texts of a request that have no result yet.
#[derive(Debug)]
struct WaitingTexts {
    id: RequestId,
    output: TextOutput,
    /// The texts with their index in the request, shortest first.
    texts: VecDeque<(usize, EncodedSequence)>,
}

/// A text of a pass.
struct PassText {
    request: RequestId,
    text: usize,
}

/// The texts of a pass.
struct Pass {
    output: TextOutput,
    texts: Vec<PassText>,
    sequences: Vec<EncodedSequence>,
}

impl<B: Backend> EmbeddingEngine<B> {
    /// An idle engine.
    pub fn new(embedder: Embedder<B>, config: EmbeddingConfig) -> Self {
        Self {
            embedder,
            config,
            waiting: VecDeque::new(),
            passes: 0,
            tokens: 0,
        }
    }

    /// Takes the texts of the next pass. `None` if none waits.
    fn next_pass(&mut self) -> Option<Pass> {
        let output = self.waiting.front()?.output;
        let (mut texts, mut sequences) = (Vec::new(), Vec::new());
        let mut tokens = 0;
        let requests = match self.config.deterministic {
            true => 1,
            false => self.waiting.len(),
        };
        let waiting = self.waiting.iter_mut().take(requests);
        for waiting in waiting.filter(|waiting| waiting.output == output) {
            let fits = |tokens: usize, sequence: &EncodedSequence| {
                tokens == 0 || tokens + sequence.ids.len() <= Embedder::<B>::PASS_TOKENS
            };
            while let Some((_, sequence)) = waiting.texts.front()
                && fits(tokens, sequence)
                && let Some((text, sequence)) = waiting.texts.pop_front()
            {
                tokens += sequence.ids.len();
                let request = waiting.id;
                texts.push(PassText { request, text });
                sequences.push(sequence);
            }
        }
        if self.waiting.len() > 1 {
            self.waiting.rotate_left(1);
        }
        self.waiting.retain(|waiting| !waiting.texts.is_empty());
        self.tokens += tokens as u64;
        Some(Pass {
            output,
            texts,
            sequences,
        })
    }

    /// Checks the texts of a request.
    fn check(&self, output: TextOutput, texts: &[EncodedSequence]) -> Result<(), GenerateError> {
        let config = self.embedder.encoder().config();
        let classifies = matches!(
            config.encoder_head(),
            Some(EncoderHeadConfig::Sequence { .. })
        );
        if output == TextOutput::Scores && !classifies {
            let rule = "must have a classifier of texts";
            return Err(SettingError::new("model", "another encoder", rule).into());
        }
        if texts.is_empty() {
            return Err(InputError::Empty.into());
        }
        for text in texts {
            let text = &text.ids;
            if text.len() > self.config.context {
                return Err(GenerateError::Overflow {
                    prompt: text.len(),
                    max_new_tokens: 0,
                    context: self.config.context,
                });
            }
            config.check_tokens(text)?;
        }
        Ok(())
    }
}

impl<B: Backend> WorkerEngine for EmbeddingEngine<B> {
    type Replacement = Infallible;

    fn limits(&self) -> EngineLimits {
        EngineLimits {
            slots: 1,
            context: self.config.context,
        }
    }

    fn sizes(&self) -> ModelSizes {
        self.embedder.encoder().config().into()
    }

    fn counts(&self) -> Counts {
        Counts {
            waiting: self.waiting.len(),
            free_slots: usize::from(self.waiting.is_empty()),
            prefilled_tokens: self.tokens,
            passes: self.passes,
            ..Counts::default()
        }
    }

    fn submit(&mut self, work: Work) -> Result<RequestId, SubmitError> {
        let (output, texts) = match work {
            Work::Embed(EmbeddingRequest { texts, .. }) => {
                let texts = texts.into_iter().map(EncodedSequence::of_ids);
                (TextOutput::Vector, texts.collect())
            }
            Work::Classify(texts) => (TextOutput::Scores, texts),
            Work::Generate(_) => {
                let rule = "must be a decoder or an encoder–decoder to generate text";
                let error = SettingError::new("model", "an encoder", rule);
                return Err(GenerateError::from(error).into());
            }
        };
        self.check(output, &texts)?;
        let id = RequestId::new();
        let texts = texts.into_iter().enumerate();
        let mut texts: Vec<(usize, EncodedSequence)> = texts.collect();
        texts.sort_by_key(|(_, sequence)| sequence.ids.len());
        self.waiting.push_back(WaitingTexts {
            id,
            output,
            texts: texts.into(),
        });
        Ok(id)
    }

    fn step(&mut self, on: &mut dyn FnMut(Event)) -> bool {
        let Some(Pass {
            output,
            texts,
            sequences,
        }) = self.next_pass()
        else {
            return false;
        };
        let mut report = |text: &PassText, kind| {
            on(Event {
                request: text.request,
                sample: text.text,
                kind,
            });
        };
        for text in &texts {
            report(text, EventKind::Started);
        }
        self.passes += 1;
        let embedder = &self.embedder;
        let run = || match output {
            TextOutput::Vector => embedder.embed_sequences(&sequences),
            TextOutput::Scores => Ok(embedder.class_scores(&sequences)?.unwrap_or_default()),
        };
        match B::run(run) {
            Ok(vectors) => {
                for (text, vector) in texts.iter().zip(vectors) {
                    report(text, EventKind::Embedded(vector));
                }
            }
            Err(error) => {
                for text in &texts {
                    report(text, EventKind::Failed(error.clone().into()));
                }
            }
        }
        true
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    // A request has one event per text, which is fewer than what pauses it.
    fn pause(&mut self, _: RequestId) {}

    fn resume(&mut self, _: RequestId) {}

    fn cancel(&mut self, request: RequestId) {
        self.waiting.retain(|waiting| waiting.id != request);
    }

    fn cancel_sample(&mut self, request: RequestId, sample: usize) {
        for waiting in &mut self.waiting {
            if waiting.id == request {
                waiting.texts.retain(|(text, _)| *text != sample);
            }
        }
        self.waiting.retain(|waiting| !waiting.texts.is_empty());
    }

    fn replace(&mut self, model: Infallible) {
        match model {}
    }
}
