//! A pass over the weights, and the tokens chosen after it.

use std::mem;

use burn::tensor::{Tensor, TensorData};

use emberlm_kernels::Backend;
use emberlm_model::{Piece, Predictor, Wanted};

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::Engine;
use super::event::{Event, EventKind};
use super::slot::{Sequence, State};
use crate::chooser::Chosen;
use crate::error::LogitsError;
use crate::plain::Finish;

/// A sequence that has its slot, and the logits that it goes on from.
pub(super) type Ready<'a> = (usize, Box<Sequence>, &'a [f32]);
/// The token that was chosen; none where its constraint is met.
pub(super) type Choice = Option<Result<Chosen, LogitsError>>;

/// Logits from which on more threads than one are worth waking up.
const SHARED: usize = 1 << 15;

/// Chooses each sequence's next token. Each looks at a whole vocabulary, which takes as long as some of the pass: on all
/// threads where it is much.
pub(super) fn choices(ready: Vec<Ready<'_>>) -> Vec<(usize, Box<Sequence>, Choice)> {
    let choose = |(slot, mut sequence, logits): Ready<'_>| {
        let chooser = &mut sequence.voice.chooser;
        let choice = (!chooser.is_complete()).then(|| chooser.choose(logits));
        (slot, sequence, choice)
    };
    let logits: usize = ready.iter().map(|(_, _, logits)| logits.len()).sum();
    match ready.len() > 1 && logits >= SHARED {
        true => ready.into_par_iter().map(choose).collect(),
        false => ready.into_iter().map(choose).collect(),
    }
}

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

    /// Adds the sequences that go on from the logits after a slot's last token: its own, and those that waited for the prompt
    /// to be read.
    pub(super) fn ready<'a>(&mut self, slot: usize, logits: &'a [f32], to: &mut Vec<Ready<'a>>) {
        let state = mem::replace(&mut self.slots[slot].state, State::Reserved);
        let State::Running(mut sequence) = state else {
            self.slots[slot].state = state;
            return;
        };
        let at = to.len();
        for (other, voice) in mem::take(&mut sequence.siblings) {
            if let Ok([read, kept]) = self.slots.get_disjoint_mut([slot, other]) {
                kept.cache.copy_from(&read.cache, read.cache.len());
                kept.tokens.clone_from(&read.tokens);
            }
            to.push((other, Box::new(sequence.sibling(voice)), logits));
        }
        to.insert(at, (slot, sequence, logits));
    }

    /// Goes on with a sequence's next token; it keeps its slot unless it ends.
    pub(super) fn go_on(
        &mut self,
        slot: usize,
        mut sequence: Box<Sequence>,
        choice: Choice,
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
        let finish = match choice {
            None => Finish::Complete,
            Some(choice) => match choice {
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
