//! Many requests at once over one decoder: continuous batching.
//!
//! An engine has slots, each with a key-value cache that is allocated once. In a step, one pass over the weights
//! ([`emberlm_model::ragged`]) takes the last token of every sample that runs, and of prompts that are yet to be read as
//! many tokens as [`EngineConfig::prefill_tokens`] allows; then a token is chosen for every sample whose logits are there.
//! Samples join as slots are free, requests in the order in which they came, and leave when they end.
//!
//! **Same tokens.** A sample's tokens are those of [`crate::generate`] with the same prompt and settings, the
//! same number of a sample, and a context of [`EngineConfig::capacity`], whatever runs beside it, in whatever pieces its
//! prompt is read, and whether its beginning was in a cache. Sums of products are rounded otherwise in another company,
//! though: where two tokens' logits are as near as that, or a draw falls as near to the bound between two, the other may
//! be taken.
//!
//! **Reuse.** A slot keeps what its cache holds when its sample ends. A request that begins as some slot's tokens begin
//! takes those from there and reads only the rest. Linear attention's sums cannot forget a token: they are taken where all
//! of what they hold is wanted, else not.
//!
//! **Same bits.** With [`EngineConfig::deterministic`] each sequence is computed in separate passes whose shapes depend on
//! the sequence only, so that concurrent sequences change no bit. The cost is that passes do not share the reading of weights.
//!
//! **Pauses.** A request whose events nobody takes can be paused ([`Engine::pause`]): its samples keep their slots and are
//! left out of passes. Their tokens are the same.
//!
//! **Embeddings.** Texts to embed ([`Engine::submit_embedding`]) are read as prompts are, in chunks next to everything that
//! runs, and the final hidden states are added up. They have at most half of the slots, and while prompts of generations
//! are to be read as well, a quarter of each step's tokens.
//!
//! Map: `config` is an engine's configuration, `request` its input, `event` its output; `slot` has the caches and
//! finds beginnings in them; `admission` gives slots to what waits, `passes` runs the decoder
//! and has tokens chosen.

mod admission;
mod config;
mod event;
mod passes;
mod request;
mod slot;

use std::collections::VecDeque;
use std::sync::Arc;

use emberlm_kernels::Backend;
use emberlm_model::Decoder;

pub use config::EngineConfig;
pub use event::{Counts, Ended, Event, EventKind};
pub use request::{Overflow, Request, RequestId};

use crate::error::{GenerateError, SettingError};
use crate::logits::floats;
use passes::choices;
use request::{Waiting, WaitingEmbedding};
use slot::{Slot, State};

/// Runs requests; whoever owns it calls [`Engine::step`] until it [`Engine::is_idle`].
#[derive(Debug)]
pub struct Engine<B: Backend> {
    decoder: Arc<Decoder<B>>,
    /// The decoder that replaces it once nothing runs.
    next_decoder: Option<Arc<Decoder<B>>>,
    config: EngineConfig,
    slots: Vec<Slot<B>>,
    waiting: VecDeque<Waiting>,
    waiting_embeddings: VecDeque<WaitingEmbedding>,
    /// True if the last request that was given a slot was a generation; embeddings take turns with them.
    generation_was_last: bool,
    /// Requests that were submitted.
    submitted: u64,
    /// Requests that were given slots.
    placed: u64,
    /// Slots that were let go of.
    freed: u64,
    /// The sums of what was done; the rest is counted when asked for.
    done: Counts,
}

impl<B: Backend> Engine<B> {
    /// An engine at rest. The caches are allocated now: [`Engine::cache_bytes`].
    ///
    /// # Errors
    /// A setting out of its range.
    pub fn new(decoder: Arc<Decoder<B>>, config: EngineConfig) -> Result<Self, SettingError> {
        config.check(decoder.config())?;
        let mut engine = Self {
            decoder,
            next_decoder: None,
            config,
            slots: Vec::new(),
            waiting: VecDeque::new(),
            waiting_embeddings: VecDeque::new(),
            generation_was_last: true,
            submitted: 0,
            placed: 0,
            freed: 0,
            done: Counts::default(),
        };
        engine.allocate();
        Ok(engine)
    }

    /// The configuration.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The decoder that runs; one that is to replace it waits until nothing does.
    pub fn decoder(&self) -> &Arc<Decoder<B>> {
        &self.decoder
    }

    /// Takes a request, which waits behind those that came before for as many free slots as it has samples, or for all slots
    /// if it has more. Samples beyond the slots wait behind the requests that came meanwhile.
    ///
    /// # Errors
    /// A setting out of its range, an empty prompt, an id outside of the vocabulary, more tokens than the context holds
    /// where it is not to slide. The engine is as before then.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, GenerateError> {
        let decoder = self.next_decoder.as_ref().unwrap_or(&self.decoder);
        let model = decoder.config();
        let id = RequestId(self.submitted);
        let waiting = Waiting::new(id, request, &self.config, model)?;
        self.submitted += 1;
        self.waiting.push_back(waiting);
        Ok(id)
    }

    /// Takes texts to embed, each of which waits for its own slot: [`EventKind::Embedded`].
    ///
    /// # Errors
    /// No texts, an empty one, an id outside of the vocabulary, more tokens than the context holds. The engine is as before
    /// then.
    pub fn submit_embedding(&mut self, texts: Vec<Vec<u32>>) -> Result<RequestId, GenerateError> {
        let decoder = self.next_decoder.as_ref().unwrap_or(&self.decoder);
        let model = decoder.config();
        let id = RequestId(self.submitted);
        let waiting = WaitingEmbedding::new(id, texts, &self.config, model)?;
        self.submitted += 1;
        self.waiting_embeddings.push_back(waiting);
        Ok(id)
    }

    /// One pass over the weights for all that runs, and a token for each sample that is not reading its prompt. `on`
    /// receives tokens and ends. Returns whether there was a pass: without one nothing changes until a request is
    /// submitted, cancelled or resumed.
    pub fn step(&mut self, on: &mut impl FnMut(Event)) -> bool {
        self.admit(on);
        let takes = self.takes();
        if takes.iter().all(|&taken| taken == 0) {
            return false;
        }
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
            .filter_map(|(slots, logits)| Some((slots, floats(logits.as_ref()?))))
            .collect();
        let mut ready = Vec::with_capacity(takes.len());
        for (slots, logits) in &logits {
            let rows = logits.chunks_exact((logits.len() / slots.len()).max(1));
            for (&slot, row) in slots.iter().zip(rows) {
                self.ready(slot, row, &mut ready);
            }
        }
        for (slot, sequence, choice) in choices(ready) {
            self.go_on(slot, sequence, choice, on);
        }
        true
    }

    /// Returns true if nothing runs and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.waiting_embeddings.is_empty() && self.runs_nothing()
    }

    /// Leaves a request's samples that run out of passes; they keep their slots.
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

    /// Ends a request at once: its slots are free, and no event of it follows. Whether there was anything to end.
    pub fn cancel(&mut self, request: RequestId) -> bool {
        self.end(request, |_| true)
    }

    /// Ends one sample of a request at once, as [`Engine::cancel`] does the request.
    pub fn cancel_sample(&mut self, request: RequestId, sample: usize) -> bool {
        self.end(request, |of| of == sample)
    }

    /// Takes another decoder: running sequences continue with the previous one, waiting ones run on the new one, once
    /// nothing else runs. A request that waits and that the new one cannot take fails. What the caches hold is forgotten.
    ///
    /// # Errors
    /// The slots' capacity is beyond its context. The engine is as before then.
    pub fn replace_decoder(&mut self, decoder: Arc<Decoder<B>>) -> Result<(), SettingError> {
        self.config.check(decoder.config())?;
        self.next_decoder = Some(decoder);
        if self.is_idle() {
            self.install(&mut |_| {});
        }
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

    /// The bytes of all slots' caches.
    pub fn cache_bytes(&self) -> usize {
        self.slots.iter().map(|slot| slot.cache.bytes()).sum()
    }

    fn runs_nothing(&self) -> bool {
        self.slots.iter().all(Slot::is_free)
    }

    fn allocate(&mut self) {
        let (model, device) = (self.decoder.config(), self.decoder.device());
        let slot = |_| Slot::new(model, self.config.capacity, &device);
        self.slots = (0..self.config.slots).map(slot).collect();
    }

    /// Lets go of a slot.
    fn free(&mut self, slot: usize) {
        self.freed += 1;
        self.slots[slot].free(self.freed);
    }
}
