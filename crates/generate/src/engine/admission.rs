//! Admission of requests to slots, and their cancellation.

use std::mem;
use std::sync::Arc;

use emberlm_kernels::Backend;

use super::Engine;
use super::acceptance::Acceptance;
use super::event::{Ended, Event, EventKind};
use super::request::{RequestId, Sample, Waiting};
use super::slot::{Embedding, RunningSample, Slot, State, oldest_free, take};
use crate::generator::Finish;

impl<B: Backend> Engine<B> {
    /// Installs the next model. Nothing may be running.
    pub(super) fn install(&mut self, on: &mut impl FnMut(Event)) {
        let Some(next) = self.next_model.take() else {
            return;
        };
        let before = mem::replace(&mut self.model, next);
        if before.has_configuration_of(&self.model) {
            self.slots.iter_mut().for_each(Slot::forget);
        } else {
            // The old caches are freed before new ones are allocated.
            self.slots.clear();
            self.allocate();
        }
        let model = &self.model;
        self.waiting.retain(|waiting| match waiting.check(model) {
            Ok(()) => true,
            Err(error) => {
                for sample in &waiting.samples {
                    on(Event {
                        request: waiting.id,
                        sample: sample.number,
                        kind: EventKind::Failed(error.clone()),
                    });
                }
                false
            }
        });
        self.waiting_embeddings
            .retain(|waiting| match waiting.check(model) {
                Ok(()) => true,
                Err(error) => {
                    for &(text, _) in &waiting.texts {
                        on(Event {
                            request: waiting.id,
                            sample: text,
                            kind: EventKind::Failed(error.clone()),
                        });
                    }
                    false
                }
            });
    }

    /// Assigns slots to waiting requests. Generations and embeddings take turns, each kind in the order of arrival.
    /// Embeddings use at most half of the slots.
    pub(super) fn admit(&mut self, on: &mut impl FnMut(Event)) {
        if self.next_model.is_some() {
            // A request finishes on the decoder that it started with.
            while self.embedding_has_begun() && self.embedding_fits() {
                self.place_embedding(on);
            }
            while let Some(at) = self.waiting.iter().position(|waiting| waiting.begun)
                && self.slots.iter().any(Slot::is_free)
                && let Some(waiting) = self.waiting.remove(at)
            {
                self.place(waiting, on);
            }
            if !self.runs_nothing()
                || self.embedding_has_begun()
                || self.waiting.iter().any(|waiting| waiting.begun)
            {
                return;
            }
            self.install(on);
        }
        loop {
            let embedding = !self.waiting_embeddings.is_empty() && self.embedding_fits();
            if embedding && (self.generation_was_last || self.waiting.is_empty()) {
                self.place_embedding(on);
                self.generation_was_last = false;
                continue;
            }
            let Some(first) = self.waiting.front() else {
                return;
            };
            let free = self.slots.iter().filter(|slot| slot.is_free()).count();
            let needed = match first.begun {
                true => 1,
                false => first.samples.len().min(self.slots.len()),
            };
            if first.needs_slot() && needed > free {
                return;
            }
            let Some(first) = self.waiting.pop_front() else {
                return;
            };
            if first.needs_slot() {
                self.place(first, on);
                self.generation_was_last = true;
                continue;
            }
            for sample in first.samples {
                let ended = Ended {
                    finish: Finish::Length,
                    stop_token: None,
                    truncated_prompt: first.truncated_prompt,
                    reused_prompt: 0,
                    slides: 0,
                };
                on(Event {
                    request: first.id,
                    sample: sample.number,
                    kind: EventKind::Finished(ended),
                });
            }
        }
    }

    fn embedding_has_begun(&self) -> bool {
        self.waiting_embeddings
            .front()
            .is_some_and(|waiting| waiting.begun)
    }

    /// Returns true if a text to embed may use a slot.
    fn embedding_fits(&self) -> bool {
        let has_one = |slot: &&Slot<B>| matches!(slot.state, State::Embedding(_));
        let embeddings = self.slots.iter().filter(has_one).count();
        embeddings < self.slots.len().div_ceil(2) && self.slots.iter().any(Slot::is_free)
    }

    /// Assigns a slot to the next text to embed. No cached prefix is reused, because every token's hidden state is
    /// needed.
    fn place_embedding(&mut self, on: &mut impl FnMut(Event)) {
        let Some(waiting) = self.waiting_embeddings.front_mut() else {
            return;
        };
        let Some(at) = oldest_free(&self.slots) else {
            return;
        };
        if let Some((text, tokens)) = waiting.texts.pop_front() {
            waiting.begun = true;
            on(Event {
                request: waiting.id,
                sample: text,
                kind: EventKind::Started,
            });
            self.placed += 1;
            let slot = &mut self.slots[at];
            slot.begin_unread(tokens, waiting.adapter);
            slot.state = State::Embedding(Box::new(Embedding {
                request: waiting.id,
                text,
                order: self.placed,
                sum: Vec::new(),
            }));
        }
        if waiting.texts.is_empty() {
            self.waiting_embeddings.pop_front();
        }
    }

    /// Assigns slots to a request. At least one slot must be free; the prompt is read in the first. Samples without a
    /// free slot wait at the end of the queue.
    fn place(&mut self, mut waiting: Waiting, on: &mut impl FnMut(Event)) {
        let Some(sample) = waiting.samples.pop_front() else {
            return;
        };
        let chunk = self
            .config
            .deterministic
            .then_some(self.config.prefill_tokens);
        let taken = match waiting.prompt_logprobs {
            None => take(&mut self.slots, &waiting.prompt, waiting.adapter, chunk),
            // The logits of every token are needed.
            Some(_) => oldest_free(&self.slots).map(|slot| {
                self.slots[slot].begin_unread(waiting.prompt.clone(), waiting.adapter);
                (slot, 0)
            }),
        };
        let Some((slot, reused_prompt)) = taken else {
            return;
        };
        self.slots[slot].state = State::Reserved;
        self.slots[slot].unread_source.clone_from(&waiting.source);
        let mut siblings = Vec::new();
        while let Some(other) = oldest_free(&self.slots)
            && let Some(sample) = waiting.samples.pop_front()
        {
            self.slots[other].state = State::Reserved;
            siblings.push((other, sample));
        }
        let placed = siblings.iter().map(|(_, sibling)| sibling);
        for sample in std::iter::once(&sample).chain(placed) {
            on(Event {
                request: waiting.id,
                sample: sample.number,
                kind: EventKind::Started,
            });
        }
        self.placed += 1;
        self.done.reused_tokens += reused_prompt as u64;
        self.slots[slot].state = State::Running(Box::new(RunningSample {
            request: waiting.id,
            sample,
            siblings,
            order: self.placed,
            left: waiting.max_new_tokens,
            stop_tokens: Arc::clone(&waiting.stop_tokens),
            reading: waiting.source.is_none(),
            truncated_prompt: waiting.truncated_prompt,
            reused_prompt,
            slides: 0,
            paused: waiting.paused,
            prompt_logprobs: waiting.prompt_logprobs,
            acceptance: Acceptance::default(),
        }));
        if !waiting.samples.is_empty() {
            waiting.begun = true;
            self.waiting.push_back(waiting);
        }
    }

    /// Ends the selected samples of a request. Returns true if there were any.
    pub(super) fn end(&mut self, request: RequestId, unwanted: impl Fn(usize) -> bool) -> bool {
        let mut found = false;
        self.waiting.retain_mut(|waiting| {
            if waiting.id != request {
                return true;
            }
            let before = waiting.samples.len();
            waiting.samples.retain(|sample| !unwanted(sample.number));
            found |= waiting.samples.len() < before;
            !waiting.samples.is_empty()
        });
        self.waiting_embeddings.retain_mut(|waiting| {
            if waiting.id == request {
                let before = waiting.texts.len();
                waiting.texts.retain(|(text, _)| !unwanted(*text));
                found |= waiting.texts.len() < before;
            }
            !waiting.texts.is_empty()
        });
        for at in 0..self.slots.len() {
            if let State::Embedding(text) = &self.slots[at].state
                && text.request == request
                && unwanted(text.text)
            {
                found = true;
                self.free(at);
            }
            let State::Running(sequence) = &mut self.slots[at].state else {
                continue;
            };
            if sequence.request != request {
                continue;
            }
            let is_unwanted = |(_, sample): &mut (usize, _)| {
                let sample: &Sample = sample;
                unwanted(sample.number)
            };
            let mut freed: Vec<usize> = sequence
                .siblings
                .extract_if(.., is_unwanted)
                .map(|(other, _)| other)
                .collect();
            if unwanted(sequence.sample.number) {
                // Another sample continues to read the prompt.
                freed.push(match sequence.siblings.pop() {
                    Some((other, sample)) => {
                        sequence.sample = sample;
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
