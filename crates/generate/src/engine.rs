//! Continuous batching: many concurrent requests on one model.
//!
//! An engine has slots, each with a key-value cache that is allocated once. In each step, one pass over the weights
//! ([`emberlm_model::ragged`]) processes the last token of every running sample and up to
//! [`EngineConfig::prefill_tokens`] tokens of unread prompts. Then a token is chosen for every sample that has logits.
//! Samples start when slots are free, in the order of arrival of their requests, and leave when they end.
//!
//! **Same tokens.** A sample's tokens equal those of [`crate::generate`] with the same prompt, settings and sample
//! number and a context of [`EngineConfig::capacity`]. They do not depend on concurrent requests, on the chunks in
//! which the prompt is read, or on cached prefixes. Rounding does depend on the batch, however: if two logits, or a
//! random draw and the boundary between two tokens, are within rounding error, the other token may be chosen.
//!
//! **Reuse.** A slot keeps its cache when its sample ends. A request with the same prefix reuses the cached tokens and
//! reads only the rest. The state of linear attention cannot be truncated: it is reused only if the request begins with
//! all of its tokens.
//!
//! **Adapters.** A decoder may have a bank of adapters ([`emberlm_model::Transformer::add_to_bank`]), and a request selects one
//! of them. Requests with different adapters share passes: the base's weights are read once for all of them. A cached
//! prefix is reused only by requests with the same adapter.
//!
//! **Same bits.** With [`EngineConfig::deterministic`] each sequence is computed in separate passes whose shapes depend
//! on this sequence only, so concurrent sequences change no bit. The cost: sequences no longer share the reading of the
//! weights.
//!
//! **Pauses.** A request whose events are not consumed can be paused ([`Engine::pause`]): its samples keep their slots
//! but skip passes. Their tokens do not change.
//!
//! **Drafts.** With [`EngineConfig::drafting`], a pass also verifies tokens that are expected to follow: repetitions of a sequence's
//! earlier text, or tokens of a smaller model ([`Engine::with_draft_model`]). They change no token of an answer.
//!
//! **Embeddings.** Texts to embed ([`Engine::submit_embedding`]) are read in chunks like prompts, and their final
//! hidden states are summed. They use at most half of the slots, and at most a quarter of each step's tokens while
//! prompts are unread.
//!
//! **Log-probabilities of prompts.** A request with [`Request::prompt_logprobs`] reads its whole prompt, and the
//! log-probabilities of each token are computed from the logits of its chunks. A pass has at most
//! [`EngineConfig::prompt_logit_rows`] such rows, which are reduced to the requested tokens at once.
//!
//! **Encoder–decoders.** A request's prompt is a source. The encoder runs over it once, before the first token, as do the
//! projections to the keys and values of the cross-attentions; all samples of the request read them. Sources are encoded
//! one by one, as many per step as [`EngineConfig::prefill_tokens`] allows, but at least one. A slot's cache holds the
//! target only, so the capacity limits source and target separately. No prefix is reused, and texts are not embedded.
//!
//! **Restarts.** [`Engine::cached_sequences`] returns the cached sequences as data, and [`Engine::restore_sequence`] puts one into
//! the cache of another engine with the same model and configuration. Requests reuse it bit for bit.
//!
//! Map: `model` has the model, `config` the configuration, `request` the input, `event` the output. `slot` has the caches and finds
//! prefixes in them, `saved` saves and restores them, `admission` assigns slots to requests, `passes` runs the decoder and chooses tokens,
//! `speculation` drafts them by the `acceptance` rates of each `draft`, and `prompt_scores` computes the
//! log-probabilities of prompts.

mod acceptance;
mod admission;
mod config;
mod draft;
mod event;
mod model;
mod passes;
mod prompt_scores;
mod request;
mod saved;
mod slot;
mod speculation;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use emberlm_kernels::Backend;
use emberlm_model::Transformer;

pub use config::{Drafting, EngineConfig};
pub use event::{Counts, Ended, Event, EventKind};
pub use model::{EngineModel, ModelSizes};
pub use request::{EmbeddingRequest, Overflow, Request, RequestId};
pub use saved::CachedSequence;

use crate::error::{GenerateError, SettingError};
use crate::logits::floats;
use acceptance::OverallAcceptance;
use passes::choices;
use request::{Waiting, WaitingEmbedding};
use slot::{Slot, State};
use speculation::{DraftModel, PassTimes, Payoff};

/// Runs requests. The owner calls [`Engine::step`] until [`Engine::is_idle`].
///
/// ```
/// # use burn::backend::Flex;
/// # use emberlm_model::{TransformerConfig, families};
/// use std::sync::Arc;
///
/// use emberlm_generate::{Engine, EngineConfig, EventKind, Request};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut config = families::preset("pocket-tales").ok_or("no such preset")?.config;
/// # (config.vocab_size, config.n_layers) = (Some(16), 1);
/// # let decoder = TransformerConfig::try_from(config)?.init::<Flex>(1, &Default::default());
/// let config = EngineConfig::for_model(decoder.config());
/// let mut engine = Engine::new(Arc::new(decoder), config)?;
/// for prompt in [vec![1, 2, 3], vec![4]] {
///     engine.submit(Request {
///         prompt,
///         max_new_tokens: 5,
///         ..Request::default()
///     })?;
/// }
/// let mut tokens = 0;
/// while engine.step(&mut |event| tokens += usize::from(matches!(event.kind, EventKind::Token(_)))) {}
/// assert_eq!(tokens, 10);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Engine<B: Backend> {
    model: EngineModel<B>,
    /// The model that replaces the current one when nothing runs.
    next_model: Option<EngineModel<B>>,
    draft_model: Option<DraftModel<B>>,
    /// Durations of passes over the last tokens of sequences and their drafts.
    pass_times: PassTimes,
    /// The realized gain of drafts.
    payoff: Payoff,
    /// The accepted draft tokens of all sequences.
    acceptance: OverallAcceptance,
    config: EngineConfig,
    slots: Vec<Slot<B>>,
    waiting: VecDeque<Waiting>,
    waiting_embeddings: VecDeque<WaitingEmbedding>,
    /// True if the last admitted request was a generation. Generations and embeddings take turns.
    generation_was_last: bool,
    /// Number of admitted requests.
    placed: u64,
    /// Number of released slots.
    freed: u64,
    /// Totals of completed work. Current numbers are counted on request.
    done: Counts,
}

impl<B: Backend> Engine<B> {
    /// An idle engine. Allocates the caches ([`Engine::cache_bytes`]).
    ///
    /// # Errors
    /// A setting is out of range.
    pub fn new(
        model: impl Into<EngineModel<B>>,
        config: EngineConfig,
    ) -> Result<Self, SettingError> {
        let model = model.into();
        config.check(&model)?;
        let mut engine = Self {
            model,
            next_model: None,
            draft_model: None,
            pass_times: PassTimes::default(),
            payoff: Payoff::default(),
            acceptance: OverallAcceptance::default(),
            config,
            slots: Vec::new(),
            waiting: VecDeque::new(),
            waiting_embeddings: VecDeque::new(),
            generation_was_last: true,
            placed: 0,
            freed: 0,
            done: Counts::default(),
        };
        engine.allocate();
        Ok(engine)
    }

    /// Adds a smaller model with the same vocabulary, which drafts tokens ([`EngineConfig::drafting`]). Allocates its caches, one per
    /// slot. The engine must be idle; its caches are cleared.
    ///
    /// # Errors
    /// Those of [`EngineConfig::check_draft`].
    pub fn with_draft_model(mut self, draft: Arc<Transformer<B>>) -> Result<Self, SettingError> {
        self.config
            .check_draft(self.model.config(), draft.config())?;
        self.draft_model = Some(DraftModel::new(draft));
        self.allocate();
        Ok(self)
    }

    /// The configuration.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The current model. Its replacement waits until nothing runs.
    pub fn model(&self) -> &EngineModel<B> {
        &self.model
    }

    /// Queues a request. It waits behind earlier requests for one free slot per sample, or for all slots if it has more
    /// samples. Samples beyond the slots wait behind the requests that arrived in the meantime.
    ///
    /// # Errors
    /// A setting is out of range, the prompt is empty, an id is outside the vocabulary, there is no such adapter, or the
    /// tokens exceed a context that does not slide. The engine does not change.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, GenerateError> {
        let model = self.next_model.as_ref().unwrap_or(&self.model);
        let id = RequestId::new();
        let waiting = Waiting::new(id, request, &self.config, model)?;
        self.waiting.push_back(waiting);
        Ok(id)
    }

    /// Queues texts to embed. Each waits for its own slot and ends with [`EventKind::Embedded`].
    ///
    /// # Errors
    /// There are no texts, a text is empty, an id is outside the vocabulary, a text exceeds the context, there is no such
    /// adapter, or the model is not a decoder. The engine does not change.
    pub fn submit_embedding(
        &mut self,
        request: impl Into<EmbeddingRequest>,
    ) -> Result<RequestId, GenerateError> {
        let model = self.next_model.as_ref().unwrap_or(&self.model);
        let id = RequestId::new();
        let waiting = WaitingEmbedding::new(id, request.into(), &self.config, model)?;
        self.waiting_embeddings.push_back(waiting);
        Ok(id)
    }

    /// Runs one pass over the weights for all running samples and chooses a token for each sample whose prompt is read.
    /// `on` receives the events. Returns false without a pass; then nothing changes until a request is submitted,
    /// cancelled or resumed.
    pub fn step(&mut self, on: &mut impl FnMut(Event)) -> bool {
        self.admit(on);
        self.encode_sources();
        let mut takes = self.takes();
        if takes.iter().all(|&taken| taken == 0) {
            return false;
        }
        let started = Instant::now();
        let measured = self.speculate(&mut takes);
        let passes = match self.config.deterministic {
            false => vec![self.pass(&takes)],
            true => (0..takes.len())
                .filter(|&at| takes[at] > 0)
                .map(|at| {
                    let mut alone = vec![0; takes.len()];
                    alone[at] = takes[at];
                    self.pass(&alone)
                })
                .collect(),
        };
        self.finish_embeddings(on);
        let logits: Vec<_> = passes
            .iter()
            .filter_map(|(asked, logits)| Some((asked, floats(logits.as_ref()?))))
            .collect();
        let mut ready = Vec::with_capacity(takes.len());
        for (asked, logits) in &logits {
            let rows: usize = asked.iter().map(|asked| asked.rows).sum();
            let width = (logits.len() / rows.max(1)).max(1);
            let mut rest = &logits[..];
            for asked in *asked {
                let (own, after) = rest.split_at(rest.len().min(asked.rows * width));
                rest = after;
                let is_scored = self.score_prompt(*asked, own, on);
                if is_scored && asked.is_read {
                    self.ready(asked.slot, own, width, &mut ready);
                }
            }
        }
        for chosen in choices(ready) {
            self.go_on(chosen, on);
        }
        if let Some(pass) = measured {
            self.record(pass, takes.iter().sum(), started.elapsed());
        }
        true
    }

    /// Returns true if nothing runs and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.waiting_embeddings.is_empty() && self.runs_nothing()
    }

    /// Pauses the running samples of a request. They keep their slots.
    pub fn pause(&mut self, request: RequestId) {
        self.set_paused(request, true);
    }

    /// Lets a request's samples continue.
    pub fn resume(&mut self, request: RequestId) {
        self.set_paused(request, false);
    }

    fn set_paused(&mut self, request: RequestId, paused: bool) {
        for slot in &mut self.slots {
            if let State::Running(sequence) = &mut slot.state
                && sequence.request == request
            {
                sequence.paused = paused;
            }
        }
        let waiting = self.waiting.iter_mut();
        waiting
            .filter(|waiting| waiting.id == request)
            .for_each(|waiting| waiting.paused = paused);
    }

    /// Ends a request immediately: its slots become free, and it has no further events. Returns false if it had already
    /// ended.
    pub fn cancel(&mut self, request: RequestId) -> bool {
        self.end(request, |_| true)
    }

    /// Ends one sample of a request immediately, like [`Engine::cancel`].
    pub fn cancel_sample(&mut self, request: RequestId, sample: usize) -> bool {
        self.end(request, |of| of == sample)
    }

    /// Replaces the decoder. Running sequences finish on the previous decoder; waiting requests then start on the new
    /// one. A waiting request that the new decoder cannot run fails. The caches are cleared.
    ///
    /// # Errors
    /// The slots' capacity exceeds the new decoder's context, or the engine runs an encoder–decoder. The engine does not
    /// change.
    pub fn replace_decoder(&mut self, decoder: Arc<Transformer<B>>) -> Result<(), SettingError> {
        let next = EngineModel::from(decoder);
        if !next.is_kind_of(&self.model) {
            let rule = "cannot replace an encoder–decoder";
            return Err(SettingError::new("model", "a decoder", rule));
        }
        self.config.check(&next)?;
        if let Some(draft) = &self.draft_model {
            self.config
                .check_draft(next.config(), draft.model().config())?;
        }
        self.next_model = Some(next);
        if self.is_idle() {
            self.install(&mut |_| {});
        }
        Ok(())
    }

    /// Replaces the decoder by the same one with other adapters in its bank. Running and waiting requests, and the caches,
    /// continue with it, so the numbers of their adapters must stay the same.
    ///
    /// # Errors
    /// The decoder has another configuration or cache format, or another decoder waits until nothing runs. The engine does
    /// not change.
    pub fn replace_bank(&mut self, decoder: Arc<Transformer<B>>) -> Result<(), SettingError> {
        let next = EngineModel::from(decoder);
        if self.next_model.is_some() || !next.has_configuration_of(&self.model) {
            let rule = "must be the current decoder with other adapters";
            return Err(SettingError::new("model", "another decoder", rule));
        }
        self.model = next;
        Ok(())
    }

    /// The engine's current work and totals.
    pub fn counts(&self) -> Counts {
        let free_slots = self.slots.iter().filter(|slot| slot.is_free()).count();
        let is_paused = |slot: &&Slot<B>| match &slot.state {
            State::Running(sequence) => sequence.paused,
            State::Free | State::Reserved | State::Embedding(_) => false,
        };
        Counts {
            running: self.slots.len() - free_slots,
            paused: self.slots.iter().filter(is_paused).count(),
            waiting: self.waiting.len() + self.waiting_embeddings.len(),
            free_slots,
            ..self.done
        }
    }

    /// The bytes of all slots' caches, with those of a draft model.
    pub fn cache_bytes(&self) -> usize {
        let drafts = self.slots.iter().filter_map(|slot| slot.draft.as_ref());
        let sequences = self.slots.iter().map(|slot| &slot.sequence);
        let caches = sequences
            .chain(drafts)
            .map(|sequence| sequence.cache.bytes());
        caches.sum()
    }

    fn runs_nothing(&self) -> bool {
        self.slots.iter().all(Slot::is_free)
    }

    fn allocate(&mut self) {
        let capacity = self.config.capacity;
        let draft = |model: &DraftModel<B>| model.cache(capacity);
        let slot = |_| {
            let drafts = self.draft_model.as_ref().map(draft);
            Slot::new(self.model.cache(capacity), drafts)
        };
        self.slots = (0..self.config.slots).map(slot).collect();
    }

    /// Releases a slot.
    fn free(&mut self, slot: usize) {
        self.freed += 1;
        self.slots[slot].free(self.freed);
    }
}
