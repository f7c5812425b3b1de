//! Speculative decoding: draft tokens, which a pass verifies together with each sequence's last token.
//!
//! A pass over the weights takes little longer for a few rows than for one while it is bound by memory. A sequence's draft is
//! appended to its tokens, the pass returns the logits of each row, and the tokens are chosen row by row, as without a draft: as long as the
//! chosen token is that of the draft, the next row is valid. All others are removed from the cache again. So drafts change no token
//! of any request, at any temperature, except for rounding: products of several rows may add their terms in another order.
//!
//! Drafts come from the sequence itself (`lookup`: the tokens that followed the last occurrence of its newest tokens), or from a smaller model
//! (`draft_model`). `pass_times` decides on the number of draft tokens by the measured durations of passes, and by the acceptance rate of
//! each sequence: no sequence has a draft where the expected throughput is not greater. `payoff` pauses all drafts where the realized
//! throughput is not greater.
//!
//! Leviathan, Kalman and Matias 2023, "Fast Inference from Transformers via Speculative Decoding".

mod draft_model;
mod lookup;
mod pass_times;
mod payoff;

use std::time::Duration;

use emberlm_kernels::Backend;

pub(super) use draft_model::DraftModel;
pub(super) use pass_times::PassTimes;
pub(super) use payoff::Payoff;

use super::Engine;
use super::config::Drafting;
use super::draft::{Draft, Origin};
use super::slot::{RunningSample, Slot, State};
use draft_model::DraftedSequence;
use lookup::Match;
use pass_times::Offer;

/// A pass whose duration is measured: each of its sequences has one new token, or a draft behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeasuredPass {
    sequences: usize,
    /// True if a sequence has a draft.
    has_drafts: bool,
    /// The accepted draft tokens of all passes before it.
    accepted: u64,
}

/// A sequence that may have a draft.
struct Candidate {
    slot: usize,
    /// The earlier text to continue, without a draft model.
    found: Option<Match>,
}

impl Candidate {
    fn origin(&self) -> Origin {
        match self.found {
            Some(found) => Origin::Match(found.len),
            None => Origin::DraftModel,
        }
    }
}

impl<B: Backend> Engine<B> {
    /// The use of drafts, if each sequence has a cache of its tokens that can be truncated. In a deterministic engine, the shape of a
    /// sequence's passes must depend neither on other sequences nor on the machine's speed.
    fn drafting(&self) -> Drafting {
        let config = self.model.config();
        let can_truncate = !config.is_recurrent();
        match self.config.drafting {
            _ if self.config.deterministic || !can_truncate => Drafting::Never,
            _ if self.model.decoder().is_none() => Drafting::Never,
            drafting => drafting,
        }
    }

    /// Appends drafts to sequences if that raises the expected throughput, and adds them to `takes`. Returns `None` if the pass is not of
    /// the kind whose durations are measured.
    pub(super) fn speculate(&mut self, takes: &mut [usize]) -> Option<MeasuredPass> {
        let drafting = self.drafting();
        if drafting.tokens() == 0 {
            return None;
        }
        let sequences = takes.iter().filter(|&&taken| taken > 0).count();
        let decodes = |(slot, &taken): (&Slot<B>, &usize)| match &slot.state {
            State::Running(sample) => taken == 0 || taken == 1 && !sample.reading,
            State::Free | State::Reserved | State::Embedding(_) => taken == 0,
        };
        if sequences == 0 || !self.slots.iter().zip(&*takes).all(decodes) {
            return None;
        }
        let mut pass = MeasuredPass {
            sequences,
            has_drafts: false,
            accepted: self.done.accepted_tokens,
        };
        self.acceptance.rest();
        if matches!(drafting, Drafting::WhileFaster(_)) && !self.payoff.next_pass() {
            return Some(pass);
        }
        let (candidates, offers) = self.offers(takes, drafting);
        let draft_pass = self.draft_model.as_ref().map_or(0.0, DraftModel::seconds);
        let mut counts: Vec<usize> = match drafting {
            Drafting::Always(_) => offers.iter().map(|offer| offer.most).collect(),
            Drafting::Never | Drafting::WhileFaster(_) => {
                self.pass_times.plan(sequences, &offers, draft_pass)
            }
        };
        // Each row has the logits of a whole vocabulary, as those of a prompt that is scored.
        let vocab_size = self.model.sizes().vocab_size;
        let mut rows_left = self.config.prompt_logit_rows(vocab_size);
        for count in &mut counts {
            *count = (*count).min(rows_left);
            rows_left -= *count;
        }
        for (slot, draft) in self.drafts(&candidates, &counts) {
            takes[slot] += draft.tokens.len();
            self.done.drafted_tokens += draft.tokens.len() as u64;
            let slot = &mut self.slots[slot];
            slot.sequence.tokens.extend_from_slice(&draft.tokens);
            slot.unverified = Some(draft);
            pass.has_drafts = true;
        }
        for (slot, &taken) in self.slots.iter_mut().zip(&*takes) {
            if let (State::Running(sample), 1) = (&mut slot.state, taken) {
                sample.acceptance.rest();
            }
        }
        Some(pass)
    }

    /// Records the duration of a pass over `rows` rows, and the gain of its drafts.
    pub(super) fn record(&mut self, pass: MeasuredPass, rows: usize, time: Duration) {
        if pass.has_drafts
            && let Some(plain) = self.pass_times.seconds(pass.sequences)
        {
            let accepted = (self.done.accepted_tokens - pass.accepted) as f64;
            let tokens = 1.0 + accepted / pass.sequences as f64;
            self.payoff.record(tokens * plain, time.as_secs_f64());
        }
        self.pass_times.record(rows, time);
    }

    /// The sequences that may have drafts.
    fn offers(&self, takes: &[usize], drafting: Drafting) -> (Vec<Candidate>, Vec<Offer>) {
        let mut candidates = Vec::new();
        let mut offers = Vec::new();
        for (at, (slot, &taken)) in self.slots.iter().zip(takes).enumerate() {
            let State::Running(sample) = &slot.state else {
                continue;
            };
            // The last of the tokens that may follow is chosen after the last row.
            let most = drafting.tokens().min(slot.sequence.room());
            let most = most.min(sample.left.saturating_sub(1));
            let is_excluded = matches!(drafting, Drafting::WhileFaster(_))
                && sample.sample.chooser.reports_logprobs();
            if taken == 0 || most == 0 || is_excluded {
                continue;
            }
            let found = match &self.draft_model {
                Some(_) => None,
                None => match Match::find(&slot.sequence.tokens) {
                    Some(found) => Some(found),
                    None => continue,
                },
            };
            let candidate = Candidate { slot: at, found };
            let prior = self.acceptance.estimate(candidate.origin());
            candidates.push(candidate);
            offers.push(Offer {
                most,
                acceptance: sample.acceptance.estimate(prior),
            });
        }
        (candidates, offers)
    }

    /// Drafts tokens: pairs of slot and draft.
    fn drafts(&mut self, candidates: &[Candidate], counts: &[usize]) -> Vec<(usize, Draft)> {
        let chosen = candidates.iter().zip(counts);
        let mut chosen = chosen.filter(|(_, count)| **count > 0).peekable();
        let Some(model) = &mut self.draft_model else {
            let draft = |(candidate, count): (&Candidate, &usize)| {
                let tokens = &self.slots[candidate.slot].sequence.tokens;
                let draft = Draft {
                    origin: candidate.origin(),
                    tokens: candidate.found?.continuation(tokens, *count),
                };
                Some((candidate.slot, draft))
            };
            return chosen.filter_map(draft).collect();
        };
        // Candidates have the order of the slots.
        let (mut numbers, mut sequences) = (Vec::new(), Vec::new());
        for (at, slot) in self.slots.iter_mut().enumerate() {
            let Some((_, count)) = chosen.next_if(|(candidate, _)| candidate.slot == at) else {
                continue;
            };
            if let (State::Running(sample), Some(reading)) = (&slot.state, &mut slot.draft) {
                numbers.push(at);
                sequences.push(DraftedSequence {
                    reading,
                    tokens: &slot.sequence.tokens,
                    sampler: sample.sample.chooser.sampler(),
                    most: *count,
                    draft: Vec::new(),
                });
            }
        }
        match model.draft(&mut sequences, self.config.prefill_tokens) {
            Ok(()) => {
                let drafts = sequences.into_iter().map(|sequence| Draft {
                    origin: Origin::DraftModel,
                    tokens: sequence.draft,
                });
                let drafts = numbers.into_iter().zip(drafts);
                drafts.filter(|(_, of)| !of.tokens.is_empty()).collect()
            }
            // A draft model that fails drafts nothing. The model itself reports an error if it has one.
            Err(_) => {
                self.draft_model = None;
                Vec::new()
            }
        }
    }
}

impl<B: Backend> Slot<B> {
    /// Removes the draft from the tokens, which the pass has read, and returns it.
    pub(super) fn take_draft(&mut self) -> Option<Draft> {
        let draft = self.unverified.take()?;
        let tokens = &mut self.sequence.tokens;
        tokens.truncate(tokens.len().saturating_sub(draft.tokens.len()));
        Some(draft)
    }

    /// Removes rejected draft tokens from the cache, which then has at most the first `read` tokens of the sequence.
    pub(super) fn drop_rejected(&mut self, read: usize) {
        if self.sequence.cache.len() > read {
            self.sequence.cache.truncate(read);
        }
    }
}

impl RunningSample {
    /// Returns true if the chosen token is that of the draft, so the logits after it are valid.
    pub(super) fn follows_draft(&self, id: u32, draft: Option<&u32>) -> bool {
        draft == Some(&id) && !self.stop_tokens.contains(&id)
    }
}
