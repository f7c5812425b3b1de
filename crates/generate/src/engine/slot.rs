//! A slot of an engine: a sequence and its current user.

use std::cmp::Reverse;
use std::sync::Arc;

use emberlm_kernels::Backend;
use emberlm_model::KvCache;

use super::RequestId;
use super::acceptance::Acceptance;
use super::draft::Draft;
use super::event::Ended;
use super::request::Sample;
use crate::generator::Finish;
use crate::sequence::Sequence;

/// A sequence, whose cache is allocated once, and its current user.
#[derive(Debug)]
pub(super) struct Slot<B: Backend> {
    /// Its cached tokens remain when the slot is free, for requests with the same prefix.
    pub sequence: Sequence<B>,
    /// The adapter that the cached keys and values were computed with.
    pub adapter: Option<usize>,
    /// The time of the last release, as a count; 0 before the first.
    pub freed: u64,
    /// Number of the first tokens in the cache that were read in whole chunks.
    pub chunked: usize,
    /// The source of the sequence, until the encoder has run over it.
    pub unread_source: Option<Arc<[u32]>>,
    /// The draft model's reading of the sequence.
    pub draft: Option<Sequence<B>>,
    /// The draft tokens at the end of the sequence, during a pass.
    pub unverified: Option<Draft>,
    pub state: State,
}

#[derive(Debug)]
pub(super) enum State {
    Free,
    /// Reserved for another sample of a prompt that is being read.
    Reserved,
    Running(Box<RunningSample>),
    /// A text to embed.
    Embedding(Box<Embedding>),
}

/// The state of a text in its slot.
#[derive(Debug)]
pub(super) struct Embedding {
    pub request: RequestId,
    /// The text's number in the request.
    pub text: usize,
    /// Its position in the order of admission.
    pub order: u64,
    /// The sum of the final hidden states so far.
    pub sum: Vec<f64>,
}

/// The state of a sample in its slot.
#[derive(Debug)]
pub(super) struct RunningSample {
    pub request: RequestId,
    pub sample: Sample,
    /// The prompt's other samples and the slots reserved for them, until the prompt is read.
    pub siblings: Vec<(usize, Sample)>,
    /// The request's position in the order of admission.
    pub order: u64,
    /// Number of tokens that may follow.
    pub left: usize,
    pub stop_tokens: Arc<[u32]>,
    /// True if the unread tokens are a prompt or a truncated context rather than a new token.
    pub reading: bool,
    pub truncated_prompt: usize,
    pub reused_prompt: usize,
    pub slides: usize,
    /// True if it is paused: it keeps its slot and skips passes.
    pub paused: bool,
    /// The number of alternatives to each token of the prompt, until it is read.
    pub prompt_logprobs: Option<usize>,
    /// The accepted tokens of its drafts.
    pub acceptance: Acceptance,
}

impl RunningSample {
    /// Another sample at the same position.
    pub fn sibling(&self, sample: Sample) -> Self {
        Self {
            request: self.request,
            sample,
            siblings: Vec::new(),
            order: self.order,
            left: self.left,
            stop_tokens: Arc::clone(&self.stop_tokens),
            reading: self.reading,
            truncated_prompt: self.truncated_prompt,
            reused_prompt: self.reused_prompt,
            slides: self.slides,
            paused: self.paused,
            prompt_logprobs: None,
            acceptance: self.acceptance,
        }
    }

    pub fn ended(&self, finish: Finish) -> Ended {
        Ended {
            finish,
            stop_token: None,
            truncated_prompt: self.truncated_prompt,
            reused_prompt: self.reused_prompt,
            slides: self.slides,
        }
    }
}

impl<B: Backend> Slot<B> {
    /// A free slot with an empty cache, and one of a draft model.
    pub fn new(cache: KvCache<B>, draft: Option<KvCache<B>>) -> Self {
        Self {
            sequence: Sequence::new(cache),
            adapter: None,
            freed: 0,
            chunked: 0,
            unread_source: None,
            draft: draft.map(Sequence::new),
            unverified: None,
            state: State::Free,
        }
    }

    pub fn is_free(&self) -> bool {
        matches!(self.state, State::Free)
    }

    /// Releases the slot. The cache remains for reuse.
    pub fn free(&mut self, now: u64) {
        self.drop_rejected(self.sequence.tokens.len());
        self.sequence.tokens.truncate(self.sequence.cache.len());
        self.sequence.source = None;
        self.unread_source = None;
        self.freed = now;
        self.state = State::Free;
    }

    /// Returns true if the log-probabilities of the unread tokens are reported.
    pub fn scores_prompt(&self) -> bool {
        matches!(&self.state, State::Running(sample) if sample.prompt_logprobs.is_some())
    }

    /// Begins a sequence of which nothing is cached.
    pub fn begin_unread(&mut self, tokens: Vec<u32>, adapter: Option<usize>) {
        self.forget();
        self.sequence.tokens = tokens;
        self.adapter = adapter;
    }

    /// Clears the cache.
    pub fn forget(&mut self) {
        self.sequence.tokens.clear();
        self.sequence.cache.clear();
        self.chunked = 0;
    }

    /// The length of the prefix of `wanted` that the cache has, computed with `adapter`. With `chunk`, only whole chunks
    /// of that many tokens count, and only if they were read as such.
    fn shared(&self, wanted: &[u32], adapter: Option<usize>, chunk: Option<usize>) -> usize {
        if self.adapter != adapter {
            return 0;
        }
        let Sequence { cache, tokens, .. } = &self.sequence;
        let held = tokens.iter().take(cache.len());
        let common = held.zip(wanted).take_while(|(a, b)| a == b).count();
        let common = chunk.map_or(common, |chunk| {
            let chunked = common.min(self.chunked);
            chunked - chunked % chunk
        });
        cache.reusable(common)
    }
}

/// Chooses a free slot for `prompt` and fills its cache with the longest prefix of the prompt in any slot's cache that
/// was computed with `adapter`. Returns the slot and the length of this prefix; `None` if no slot is free. The last token is never part of it: its
/// logits are needed.
///
/// If the prefix is in a free slot with few other tokens, this slot is used. If the slot has many more tokens or is
/// running, it keeps them, and the prefix is copied into the least recently released slot.
///
/// With `chunk`, only whole chunks of that many tokens are reused.
pub(super) fn take<B: Backend>(
    slots: &mut [Slot<B>],
    prompt: &[u32],
    adapter: Option<usize>,
    chunk: Option<usize>,
) -> Option<(usize, usize)> {
    let oldest = oldest_free(slots)?;
    let wanted = prompt.split_last().map_or(prompt, |(_, before)| before);
    let shares = slots.iter().map(|slot| match slot.state {
        State::Reserved => 0,
        State::Free | State::Running(_) | State::Embedding(_) => {
            slot.shared(wanted, adapter, chunk)
        }
    });
    // Among equal prefixes, prefer a free slot, which may need no copy.
    let donor = shares
        .enumerate()
        .max_by_key(|&(at, shared)| (shared, slots[at].is_free(), Reverse(at)));
    let (slot, shared) = match donor {
        Some((donor, shared)) if shared > 0 => {
            let mostly = shared * 2 >= slots[donor].sequence.cache.len();
            let stays = slots[donor].is_free() && mostly || donor == oldest;
            let slot = if stays { donor } else { oldest };
            let held = match slots.get_disjoint_mut([donor, slot]) {
                Ok([donor, slot]) => slot.sequence.cache.copy_from(&donor.sequence.cache, shared),
                Err(_) => slots[slot].sequence.cache.truncate(shared),
            };
            (slot, held)
        }
        _ => {
            slots[oldest].sequence.cache.clear();
            (oldest, 0)
        }
    };
    slots[slot].chunked = chunk.map_or(0, |_| shared);
    slots[slot].adapter = adapter;
    slots[slot].sequence.tokens.clear();
    slots[slot].sequence.tokens.extend_from_slice(prompt);
    Some((slot, shared))
}

/// The least recently released free slot.
pub(super) fn oldest_free<B: Backend>(slots: &[Slot<B>]) -> Option<usize> {
    let free = slots.iter().enumerate().filter(|(_, slot)| slot.is_free());
    free.min_by_key(|(_, slot)| slot.freed).map(|(at, _)| at)
}
