//! A pass over the weights, and the tokens chosen after it.

use std::mem;

use burn::tensor::{Tensor, TensorData};

use emberlm_kernels::Backend;
use emberlm_model::{Piece, Predictor, Wanted};

use super::Engine;
use super::event::{Event, EventKind};
use super::slot::{Sequence, State};
use crate::plain::Finish;

impl<B: Backend> Engine<B> {
    /// How many tokens each slot gives the next pass: one where one is left, of longer ones what the step allows, those
    /// first that have been there the longest.
    pub(super) fn takes(&mut self) -> Vec<usize> {
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
    pub(super) fn pass(&mut self, takes: &[usize]) -> Option<(Vec<usize>, TensorData)> {
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
    pub(super) fn advance(&mut self, slot: usize, logits: &[f32], on: &mut impl FnMut(Event)) {
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
        let chooser = &mut sequence.voice.chooser;
        let finish = match chooser.is_complete() {
            true => Finish::Complete,
            false => match chooser.choose(logits) {
                Ok(chosen) if sequence.stop_tokens.contains(&chosen.id) => Finish::Stop(chosen.id),
                Ok(chosen) => {
                    let id = chosen.id;
                    self.done.made_tokens += 1;
                    tell(EventKind::Token(chosen));
                    sequence.left -= 1;
                    sequence.reading = false;
                    match sequence.voice.chooser.is_complete() {
                        true => Finish::Complete,
                        false if sequence.left > 0 => {
                            self.slots[slot].tokens.push(id);
                            self.slots[slot].state = State::Running(sequence);
                            return;
                        }
                        false => Finish::Length,
                    }
                }
                Err(error) => {
                    tell(EventKind::Failed(error.into()));
                    // What gave such logits is not for others to go on from.
                    self.slots[slot].forget();
                    self.free(slot);
                    return;
                }
            },
        };
        tell(EventKind::Finished(sequence.ended(finish)));
        self.free(slot);
    }
}
