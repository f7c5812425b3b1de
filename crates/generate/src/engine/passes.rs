//! A pass over the weights, and the tokens chosen after it.

use std::mem;

use burn::tensor::{Tensor, TensorData};

use emberlm_kernels::Backend;
use emberlm_model::{RequestedOutput, SequenceChunk};

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::Engine;
use super::draft::Draft;
use super::event::{Ended, Event, EventKind};
use super::slot::{RunningSample, State};
use crate::chooser::Chosen;
use crate::error::LogitsError;
use crate::generator::Finish;
use crate::logits::floats;

/// A sequence in its slot, and the logits after its last token and after each token of its draft.
pub(super) struct Ready<'a> {
    slot: usize,
    sequence: Box<RunningSample>,
    /// `[rows, vocab_size]`.
    logits: &'a [f32],
    vocab_size: usize,
    draft: Option<Draft>,
}

/// The next tokens of a sequence in its slot: one, and one for each accepted token of its draft.
pub(super) struct Choices {
    slot: usize,
    sequence: Box<RunningSample>,
    draft: Option<Draft>,
    tokens: Vec<Choice>,
}

/// The chosen token; `None` if the constraint is met, or no token may follow.
type Choice = Option<Result<Chosen, LogitsError>>;

/// The logits of one sequence in a pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogitRows {
    pub slot: usize,
    pub rows: usize,
    /// True if the last row is that of the sequence's last token.
    pub is_read: bool,
}

/// Minimum number of logits for which several threads are faster than one.
pub(super) const SHARED: usize = 1 << 15;

/// Chooses each sequence's next tokens. Reading a whole vocabulary takes a noticeable part of a pass, so large ones use
/// all threads.
pub(super) fn choices(ready: Vec<Ready<'_>>) -> Vec<Choices> {
    let logits: usize = ready.iter().map(|ready| ready.logits.len()).sum();
    match ready.len() > 1 && logits >= SHARED {
        true => ready.into_par_iter().map(Ready::choose).collect(),
        false => ready.into_iter().map(Ready::choose).collect(),
    }
}

impl Ready<'_> {
    /// Chooses a token for each row while it is that of the draft.
    fn choose(self) -> Choices {
        let Self {
            slot,
            mut sequence,
            logits,
            vocab_size,
            draft,
        } = self;
        let drafted = draft.as_ref().map_or(&[][..], |draft| &draft.tokens);
        let mut tokens = Vec::with_capacity(drafted.len() + 1);
        for (place, logits) in logits.chunks_exact(vocab_size).enumerate() {
            let chooser = &mut sequence.sample.chooser;
            if sequence.left == 0 || chooser.is_complete() {
                tokens.push(None);
                break;
            }
            let chosen = chooser.choose(logits);
            let id = chosen.as_ref().ok().map(|chosen| chosen.id);
            let is_complete = chooser.is_complete();
            tokens.push(Some(chosen));
            if is_complete || !id.is_some_and(|id| sequence.follows_draft(id, drafted.get(place))) {
                break;
            }
        }
        Choices {
            slot,
            sequence,
            draft,
            tokens,
        }
    }
}

impl<B: Backend> Engine<B> {
    /// Runs the encoder over unread sources in the order of admission: over the first, and over as many others as a step
    /// allows.
    pub(super) fn encode_sources(&mut self) {
        let mut unread: Vec<(u64, usize, usize)> = Vec::new();
        for (at, slot) in self.slots.iter().enumerate() {
            if let (State::Running(sequence), Some(source)) = (&slot.state, &slot.unread_source)
                && !sequence.paused
            {
                unread.push((sequence.order, at, source.len()));
            }
        }
        unread.sort_unstable();
        let mut left = self.config.prefill_tokens;
        for (number, (_, at, len)) in unread.into_iter().enumerate() {
            if number > 0 && len > left {
                return;
            }
            left = left.saturating_sub(len);
            let slot = &mut self.slots[at];
            if let Some(source) = slot.unread_source.take() {
                slot.sequence.source = Some(self.model.encode(&source));
                self.done.prefilled_tokens += len as u64;
            }
        }
    }

    /// The number of tokens of each slot in the next pass: one if one is left, otherwise as many as the step allows,
    /// oldest slots first. Texts to embed use a quarter of the allowance while prompts are unread.
    pub(super) fn takes(&mut self) -> Vec<usize> {
        let mut takes = vec![0; self.slots.len()];
        let (mut prompts, mut texts) = (Vec::new(), Vec::new());
        for (at, slot) in self.slots.iter_mut().enumerate() {
            match &mut slot.state {
                State::Free | State::Reserved => {}
                State::Embedding(text) => texts.push((text.order, at)),
                State::Running(sample) if sample.paused || slot.unread_source.is_some() => {}
                State::Running(sample) => {
                    let slides = slot.sequence.make_room(1);
                    if slides {
                        slot.chunked = 0;
                        sample.slides += 1;
                        sample.reading = true;
                    }
                    match slot.sequence.unread() {
                        1 if !slides => takes[at] = 1,
                        _ => prompts.push((sample.order, at)),
                    }
                }
            }
        }
        prompts.sort_unstable();
        texts.sort_unstable();
        let all = self.config.prefill_tokens;
        let unread = texts
            .iter()
            .map(|&(_, at)| self.slots[at].sequence.unread());
        let kept = unread.sum::<usize>().min(all / 4);
        let left = self.share(&prompts, all - kept, &mut takes);
        self.share(&texts, left + kept, &mut takes);
        for (slot, &taken) in self.slots.iter().zip(&takes) {
            let decodes = matches!(&slot.state, State::Running(sequence) if !sequence.reading);
            let count = match decodes {
                true => &mut self.done.decoded_tokens,
                false => &mut self.done.prefilled_tokens,
            };
            *count += taken as u64;
        }
        takes
    }

    /// Distributes `left` tokens of a pass in order among slots with more than one token to read. Returns the rest.
    fn share(&self, slots: &[(u64, usize)], mut left: usize, takes: &mut [usize]) -> usize {
        let chunk = self.config.prefill_tokens;
        let logit_rows = self.config.prompt_logit_rows(self.model.sizes().vocab_size);
        let mut logit_rows_left = logit_rows;
        for (n, &(_, at)) in slots.iter().enumerate() {
            let slot = &self.slots[at];
            let sequence = &slot.sequence;
            let (most, most_left) = match slot.scores_prompt() {
                true => (logit_rows, logit_rows_left),
                false => (usize::MAX, usize::MAX),
            };
            let unread = sequence.unread().min(most);
            takes[at] = match self.config.deterministic {
                false => unread.min(left).min(most_left),
                // Only whole chunks. The first slot gets a chunk even if it exceeds the rest.
                true => match unread.min(chunk - sequence.cache.len() % chunk) {
                    whole if whole <= left.min(most_left) || n == 0 => whole,
                    _ => 0,
                },
            };
            left = left.saturating_sub(takes[at]);
            if slot.scores_prompt() {
                logit_rows_left = logit_rows_left.saturating_sub(takes[at]);
            }
        }
        left
    }

    /// Runs one pass over the weights. Returns the rows of its logits, and the logits `[rows, vocab_size]`, if there are any.
    pub(super) fn pass(&mut self, takes: &[usize]) -> (Vec<LogitRows>, Option<TensorData>) {
        let model = &self.model;
        let chunk = self.config.prefill_tokens;
        let (mut chunks, mut asked, mut embedded) = (Vec::new(), Vec::new(), Vec::new());
        let slots = self.slots.iter_mut().zip(takes).enumerate();
        let mut slots: Vec<_> = slots.filter(|(_, (_, taken))| **taken > 0).collect();
        // The rows of one adapter are computed together.
        slots.sort_by_key(|(_, (slot, _))| slot.adapter);
        for (at, (slot, &taken)) in slots {
            if taken == chunk && slot.chunked == slot.sequence.cache.len() {
                slot.chunked += taken;
            }
            let is_read = slot.sequence.unread() == taken;
            let output = match (&slot.state, is_read) {
                (State::Embedding(_), _) => RequestedOutput::HiddenSum,
                _ if slot.scores_prompt() || slot.unverified.is_some() => RequestedOutput::All,
                (_, true) => RequestedOutput::Last,
                (_, false) => RequestedOutput::None,
            };
            let rows = match output {
                RequestedOutput::All => taken,
                RequestedOutput::Last => 1,
                RequestedOutput::HiddenSum => {
                    embedded.push(at);
                    0
                }
                RequestedOutput::None => 0,
            };
            if rows > 0 {
                asked.push(LogitRows {
                    slot: at,
                    rows,
                    is_read,
                });
            }
            chunks.push(SequenceChunk {
                adapter: slot.adapter,
                ..slot.sequence.chunk(taken, output)
            });
        }
        self.done.passes += 1;
        let (logits, sums) = B::run(|| {
            let output = model.ragged(&mut chunks);
            let data = Tensor::<B, 2>::into_data;
            (output.logits.map(data), output.hidden_sums.map(data))
        });
        if let Some(sums) = sums {
            let sums = floats(&sums);
            let rows = sums.chunks_exact((sums.len() / embedded.len().max(1)).max(1));
            for (at, row) in embedded.into_iter().zip(rows) {
                if let State::Embedding(text) = &mut self.slots[at].state {
                    text.sum.resize(row.len(), 0.0);
                    let sums = text.sum.iter_mut().zip(row);
                    sums.for_each(|(sum, &x)| *sum += f64::from(x));
                }
            }
        }
        (asked, logits)
    }

    /// Reports the texts that are completely read, and frees their slots.
    pub(super) fn finish_embeddings(&mut self, on: &mut impl FnMut(Event)) {
        for at in 0..self.slots.len() {
            let slot = &self.slots[at];
            let State::Embedding(text) = &slot.state else {
                continue;
            };
            if slot.sequence.unread() > 0 {
                continue;
            }
            let count = slot.sequence.tokens.len().max(1) as f64;
            on(Event {
                request: text.request,
                sample: text.text,
                kind: EventKind::Embedded(text.sum.iter().map(|x| (x / count) as f32).collect()),
            });
            self.free(at);
        }
    }

    /// Adds the sequences that continue from the logits after a slot's tokens, `[rows, vocab_size]`: its own sample, and the samples that
    /// waited for the prompt.
    pub(super) fn ready<'a>(
        &mut self,
        slot: usize,
        logits: &'a [f32],
        vocab_size: usize,
        to: &mut Vec<Ready<'a>>,
    ) {
        let state = mem::replace(&mut self.slots[slot].state, State::Reserved);
        let State::Running(mut sequence) = state else {
            self.slots[slot].state = state;
            return;
        };
        sequence.prompt_logprobs = None;
        let draft = self.slots[slot].take_draft();
        // Of a prompt, only the last row is followed by a token.
        let drafted = draft.as_ref().map_or(0, |draft| draft.tokens.len());
        let followed = (drafted + 1) * vocab_size;
        let logits = &logits[logits.len().saturating_sub(followed)..];
        let ready = |slot, sequence, draft| Ready {
            slot,
            sequence,
            logits,
            vocab_size,
            draft,
        };
        let at = to.len();
        for (other, sample) in mem::take(&mut sequence.siblings) {
            if let Ok([read, kept]) = self.slots.get_disjoint_mut([slot, other]) {
                kept.sequence.copy_from(&read.sequence);
                kept.adapter = read.adapter;
                kept.chunked = read.chunked;
            }
            to.push(ready(other, Box::new(sequence.sibling(sample)), None));
        }
        to.insert(at, ready(slot, sequence, draft));
    }

    /// Continues a sequence with its next tokens. It keeps its slot unless it ends.
    pub(super) fn go_on(&mut self, choices: Choices, on: &mut impl FnMut(Event)) {
        let Choices {
            slot,
            mut sequence,
            draft,
            tokens,
        } = choices;
        let (request, sample) = (sequence.request, sequence.sample.number);
        let mut tell = |kind| {
            on(Event {
                request,
                sample,
                kind,
            });
        };
        let mut stop_token = None;
        let last = tokens.len().saturating_sub(1);
        if let Some(draft) = draft {
            let drafted = draft.tokens.len();
            sequence.acceptance.record(drafted, last);
            self.acceptance.record(draft.origin, drafted, last);
        }
        self.done.accepted_tokens += last as u64;
        self.done.decoded_tokens += last as u64;
        let mut finish = None;
        for (place, choice) in tokens.into_iter().enumerate() {
            finish = match choice {
                None if sequence.left == 0 => Some(Finish::Length),
                None => Some(Finish::Complete),
                Some(Ok(chosen)) if sequence.stop_tokens.contains(&chosen.id) => {
                    let id = chosen.id;
                    stop_token = Some(chosen);
                    Some(Finish::Stop(id))
                }
                Some(Ok(chosen)) => {
                    let id = chosen.id;
                    self.done.made_tokens += 1;
                    tell(EventKind::Token(chosen));
                    sequence.left -= 1;
                    sequence.reading = false;
                    // The chooser is past all of these tokens.
                    match place == last && sequence.sample.chooser.is_complete() {
                        true => Some(Finish::Complete),
                        false if sequence.left > 0 => {
                            self.slots[slot].sequence.tokens.push(id);
                            None
                        }
                        false => Some(Finish::Length),
                    }
                }
                Some(Err(error)) => {
                    tell(EventKind::Failed(error.into()));
                    // Other sequences must not continue from the tokens with such logits.
                    self.slots[slot].forget();
                    self.free(slot);
                    return;
                }
            };
        }
        let Some(finish) = finish else {
            // The last token is not read yet.
            let read = self.slots[slot].sequence.tokens.len().saturating_sub(1);
            self.slots[slot].drop_rejected(read);
            self.slots[slot].state = State::Running(sequence);
            return;
        };
        tell(EventKind::Finished(Ended {
            stop_token,
            ..sequence.ended(finish)
        }));
        self.free(slot);
    }
}
