//! Many requests at once over one decoder: continuous batching.
//!
//! An engine has slots, each with a key-value cache that is allocated once. In a step, one pass over the weights
//! ([`emberlm_model::ragged`]) takes the last token of every sample that runs, and of prompts that are yet to be read as
//! many tokens as [`EngineConfig::prefill_tokens`] allows; then a token is chosen for every sample whose logits are there.
//! Samples join as slots are free, requests in the order in which they came, and leave when they end.
//!
//! **Same tokens.** A sample's tokens are those of [`crate::generate`] with the same prompt and settings, its seed that
//! of [`seed_of_sample`], and a context of [`EngineConfig::capacity`], whatever runs beside it, in whatever pieces its
//! prompt is read, and whether its beginning was in a cache. Sums of products are rounded otherwise in another company,
//! though: where two tokens' logits are as near as that, or a draw falls as near to the bound between two, the other may
//! be taken.
//!
//! **Reuse.** A slot keeps what its cache holds when its sample ends. A request that begins as some slot's tokens begin
//! takes those from there and reads only the rest. Linear attention's sums cannot forget a token: they are taken where all
//! of what they hold is wanted, else not.
//!
//! Map: `config` is how large an engine is, `request` what is asked of it, `event` what it tells; `slot` has the caches and
//! finds beginnings in them, `choosing` is where a token is chosen.

mod choosing;
mod config;
mod event;
mod request;
mod slot;

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};

use emberlm_kernels::Backend;
use emberlm_model::{InferenceDecoder, Piece, Predictor, Wanted};

pub use choosing::seed_of_sample;
pub use config::EngineConfig;
pub use event::{Counts, Ended, Event, EventKind};
pub use request::{Overflow, Request, RequestId};

use crate::error::{GenerateError, SettingError};
use crate::logits::floats;
use crate::plain::Finish;
use request::Waiting;
use slot::{Sequence, Slot, State, oldest_free, take};

/// Runs requests; whoever owns it calls [`Engine::step`] until it [`Engine::is_idle`].
#[derive(Debug)]
pub struct Engine<B: Backend> {
    decoder: Arc<InferenceDecoder<B>>,
    /// What takes its place once nothing runs.
    next_decoder: Option<Arc<InferenceDecoder<B>>>,
    config: EngineConfig,
    slots: Vec<Slot<B>>,
    waiting: VecDeque<Waiting>,
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
    pub fn new(
        decoder: Arc<InferenceDecoder<B>>,
        config: EngineConfig,
    ) -> Result<Self, SettingError> {
        config.check(Predictor::from(&*decoder).config())?;
        let mut engine = Self {
            decoder,
            next_decoder: None,
            config,
            slots: Vec::new(),
            waiting: VecDeque::new(),
            submitted: 0,
            placed: 0,
            freed: 0,
            done: Counts::default(),
        };
        engine.allocate();
        Ok(engine)
    }

    /// What it was made with.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The decoder that runs; one that is to replace it waits until nothing does.
    pub fn decoder(&self) -> &Arc<InferenceDecoder<B>> {
        &self.decoder
    }

    /// Takes a request, which waits for as many free slots as it has samples behind those that came before.
    ///
    /// # Errors
    /// A setting out of its range, an empty prompt, an id outside of the vocabulary, more tokens than the context holds
    /// where it is not to slide. The engine is as before then.
    pub fn submit(&mut self, request: Request) -> Result<RequestId, GenerateError> {
        let decoder = self.next_decoder.as_ref().unwrap_or(&self.decoder);
        let model = Predictor::from(&**decoder).config();
        let id = RequestId(self.submitted);
        let waiting = Waiting::new(id, request, &self.config, model)?;
        self.submitted += 1;
        self.waiting.push_back(waiting);
        Ok(id)
    }

    /// One pass over the weights for all that runs, and a token for each sample that is not reading its prompt. `on` hears
    /// of tokens and ends.
    pub fn step(&mut self, on: &mut impl FnMut(Event)) {
        self.admit(on);
        let takes = self.takes();
        let Some((slots, logits)) = self.pass(&takes) else {
            return;
        };
        let logits = floats(&logits);
        let rows = logits.chunks_exact((logits.len() / slots.len()).max(1));
        for (slot, row) in slots.into_iter().zip(rows) {
            self.advance(slot, row, on);
        }
    }

    /// Whether nothing runs and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.runs_nothing()
    }

    /// Ends a request at once: its slots are free, and no event of it follows. Whether there was anything to end.
    pub fn cancel(&mut self, request: RequestId) -> bool {
        self.end(request, |_| true)
    }

    /// Ends one sample of a request at once, as [`Engine::cancel`] does the request.
    pub fn cancel_sample(&mut self, request: RequestId, sample: usize) -> bool {
        self.end(request, |of| of == sample)
    }

    /// Takes another decoder: what runs goes on with the one that it began with, what waits runs on the new one, once
    /// nothing else runs. A request that waits and that the new one cannot take fails. What the caches hold is forgotten.
    ///
    /// # Errors
    /// The slots' capacity is beyond its context. The engine is as before then.
    pub fn replace_decoder(
        &mut self,
        decoder: Arc<InferenceDecoder<B>>,
    ) -> Result<(), SettingError> {
        self.config.check(Predictor::from(&*decoder).config())?;
        self.next_decoder = Some(decoder);
        if self.is_idle() {
            self.install(&mut |_| {});
        }
        Ok(())
    }

    /// What it is doing and has done.
    pub fn counts(&self) -> Counts {
        let free_slots = self.slots.iter().filter(|slot| slot.is_free()).count();
        Counts {
            running: self.slots.len() - free_slots,
            waiting: self.waiting.len(),
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
        let predictor = Predictor::from(&*self.decoder);
        let (model, device) = (predictor.config(), predictor.device());
        let slot = |_| Slot::new(model, self.config.capacity, &device);
        self.slots = (0..self.config.slots).map(slot).collect();
    }

    /// Puts the next decoder in place; nothing runs.
    fn install(&mut self, on: &mut impl FnMut(Event)) {
        let Some(next) = self.next_decoder.take() else {
            return;
        };
        let before = mem::replace(&mut self.decoder, next);
        let model = Predictor::from(&*self.decoder).config();
        if Predictor::from(&*before).config() == model {
            self.slots.iter_mut().for_each(Slot::forget);
        } else {
            // What is let go of makes room for what is allocated.
            self.slots.clear();
            self.allocate();
        }
        let model = Predictor::from(&*self.decoder).config();
        self.waiting.retain(|waiting| match waiting.check(model) {
            Ok(()) => true,
            Err(error) => {
                for voice in &waiting.voices {
                    on(Event {
                        request: waiting.id,
                        sample: voice.sample,
                        kind: EventKind::Failed(error.clone()),
                    });
                }
                false
            }
        });
    }

    /// Gives slots to what waits, in order.
    fn admit(&mut self, on: &mut impl FnMut(Event)) {
        if self.next_decoder.is_some() {
            if !self.runs_nothing() {
                return;
            }
            self.install(on);
        }
        while let Some(first) = self.waiting.front() {
            let free = self.slots.iter().filter(|slot| slot.is_free()).count();
            if first.max_new_tokens > 0 && first.voices.len() > free {
                return;
            }
            let Some(first) = self.waiting.pop_front() else {
                return;
            };
            if first.max_new_tokens > 0 {
                self.place(first);
                continue;
            }
            for voice in first.voices {
                let ended = Ended {
                    finish: Finish::Length,
                    truncated_prompt: first.truncated_prompt,
                    reused_prompt: 0,
                    slides: 0,
                };
                on(Event {
                    request: first.id,
                    sample: voice.sample,
                    kind: EventKind::Finished(ended),
                });
            }
        }
    }

    /// Gives a request its slots, of which enough are free: the prompt is read in the first.
    fn place(&mut self, waiting: Waiting) {
        let mut voices = waiting.voices.into_iter();
        let Some(voice) = voices.next() else {
            return;
        };
        let Some((slot, reused_prompt)) = take(&mut self.slots, &waiting.prompt) else {
            return;
        };
        self.slots[slot].state = State::Reserved;
        let mut siblings = Vec::with_capacity(voices.len());
        for voice in voices {
            if let Some(other) = oldest_free(&self.slots) {
                self.slots[other].state = State::Reserved;
                siblings.push((other, voice));
            }
        }
        self.placed += 1;
        self.done.reused_tokens += reused_prompt as u64;
        self.slots[slot].state = State::Running(Box::new(Sequence {
            request: waiting.id,
            voice,
            siblings,
            order: self.placed,
            left: waiting.max_new_tokens,
            stop_tokens: waiting.stop_tokens,
            reading: true,
            truncated_prompt: waiting.truncated_prompt,
            reused_prompt,
            slides: 0,
        }));
    }

    /// How many tokens each slot gives the next pass: one where one is left, of longer ones what the step allows, those
    /// first that have been there the longest.
    fn takes(&mut self) -> Vec<usize> {
        let mut takes = vec![0; self.slots.len()];
        let mut long = Vec::new();
        for (at, slot) in self.slots.iter_mut().enumerate() {
            let State::Running(sequence) = &mut slot.state else {
                continue;
            };
            if slot.tokens.len() > slot.cache.capacity() {
                sequence.slides += 1;
                sequence.reading = true;
                slot.slide();
            }
            if let State::Running(sequence) = &slot.state {
                match slot.unseen() {
                    1 => takes[at] = 1,
                    unseen => long.push((sequence.order, at, unseen)),
                }
            }
        }
        long.sort_unstable();
        let mut left = self.config.prefill_tokens;
        for (_, at, unseen) in long {
            takes[at] = unseen.min(left);
            left -= takes[at];
        }
        for (slot, &taken) in self.slots.iter().zip(&takes) {
            if let State::Running(sequence) = &slot.state {
                let count = match sequence.reading {
                    true => &mut self.done.prefilled_tokens,
                    false => &mut self.done.decoded_tokens,
                };
                *count += taken as u64;
            }
        }
        takes
    }

    /// The pass; the slots whose next token can be chosen now, and their logits `[slots, vocab_size]`. None where there are
    /// no such.
    fn pass(&mut self, takes: &[usize]) -> Option<(Vec<usize>, TensorData)> {
        let predictor = Predictor::from(&*self.decoder);
        let (mut pieces, mut asked) = (Vec::new(), Vec::new());
        for (at, (slot, &taken)) in self.slots.iter_mut().zip(takes).enumerate() {
            if taken == 0 {
                continue;
            }
            let seen = slot.cache.len();
            let logits = match slot.unseen() == taken {
                true => Wanted::Last,
                false => Wanted::None,
            };
            if logits == Wanted::Last {
                asked.push(at);
            }
            pieces.push(Piece {
                tokens: &slot.tokens[seen..seen + taken],
                cache: &mut slot.cache,
                logits,
            });
        }
        if pieces.is_empty() {
            return None;
        }
        self.done.passes += 1;
        let logits = B::run(|| predictor.ragged(&mut pieces).map(Tensor::into_data));
        logits.map(|logits| (asked, logits))
    }

    /// Goes on with a slot's sequence from the logits after its last token, and with those that waited for the prompt to be
    /// read.
    fn advance(&mut self, slot: usize, logits: &[f32], on: &mut impl FnMut(Event)) {
        let state = mem::replace(&mut self.slots[slot].state, State::Reserved);
        let State::Running(mut sequence) = state else {
            self.slots[slot].state = state;
            return;
        };
        let mut siblings = Vec::new();
        for (other, voice) in mem::take(&mut sequence.siblings) {
            if let Ok([read, kept]) = self.slots.get_disjoint_mut([slot, other]) {
                kept.cache.copy_from(&read.cache, read.cache.len());
                kept.tokens.clone_from(&read.tokens);
            }
            siblings.push((other, Box::new(sequence.sibling(voice))));
        }
        self.go_on(slot, sequence, logits, on);
        for (other, sibling) in siblings {
            self.go_on(other, sibling, logits, on);
        }
    }

    /// Chooses a sequence's next token; it keeps its slot unless it ends.
    fn go_on(
        &mut self,
        slot: usize,
        mut sequence: Box<Sequence>,
        logits: &[f32],
        on: &mut impl FnMut(Event),
    ) {
        let (request, sample) = (sequence.request, sequence.voice.sample);
        let mut tell = |kind| {
            on(Event {
                request,
                sample,
                kind,
            });
        };
        let finish = match sequence.voice.choosing.choose(logits) {
            Ok(id) if sequence.stop_tokens.contains(&id) => Finish::Stop(id),
            Ok(id) => {
                tell(EventKind::Token { id });
                sequence.left -= 1;
                sequence.reading = false;
                if sequence.left > 0 {
                    self.slots[slot].tokens.push(id);
                    self.slots[slot].state = State::Running(sequence);
                    return;
                }
                Finish::Length
            }
            Err(error) => {
                tell(EventKind::Failed(error));
                // What gave such logits is not for others to go on from.
                self.slots[slot].forget();
                self.free(slot);
                return;
            }
        };
        tell(EventKind::Finished(sequence.ended(finish)));
        self.free(slot);
    }

    fn free(&mut self, slot: usize) {
        self.freed += 1;
        self.slots[slot].free(self.freed);
    }

    /// Ends those samples of a request; whether there were any.
    fn end(&mut self, request: RequestId, unwanted: impl Fn(usize) -> bool) -> bool {
        let mut found = false;
        self.waiting.retain_mut(|waiting| {
            if waiting.id != request {
                return true;
            }
            let before = waiting.voices.len();
            waiting.voices.retain(|voice| !unwanted(voice.sample));
            found |= waiting.voices.len() < before;
            !waiting.voices.is_empty()
        });
        for at in 0..self.slots.len() {
            let State::Running(sequence) = &mut self.slots[at].state else {
                continue;
            };
            if sequence.request != request {
                continue;
            }
            let is_unwanted = |(_, voice): &mut (usize, _)| {
                let voice: &request::Voice = voice;
                unwanted(voice.sample)
            };
            let mut freed: Vec<usize> = sequence
                .siblings
                .extract_if(.., is_unwanted)
                .map(|(other, _)| other)
                .collect();
            if unwanted(sequence.voice.sample) {
                // Another sample reads the prompt on in its place.
                freed.push(match sequence.siblings.pop() {
                    Some((other, voice)) => {
                        sequence.voice = voice;
                        other
                    }
                    None => at,
                });
            }
            found |= !freed.is_empty();
            freed.into_iter().for_each(|slot| self.free(slot));
        }
        found
    }
}
