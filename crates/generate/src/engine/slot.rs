//! A sequence's place in an engine: its cache, and the tokens that are in it.

use std::cmp::Reverse;
use std::sync::Arc;

use emberlm_kernels::Backend;
use emberlm_model::{DecoderConfig, KvCache};

use burn::tensor::Device;

use super::RequestId;
use super::event::Ended;
use super::request::Sample;
use crate::plain::Finish;

/// A cache that is allocated once, and who has it.
#[derive(Debug)]
pub(super) struct Slot<B: Backend> {
    pub cache: KvCache<B>,
    /// The context: what the cache holds first, then what it has not seen. They stay when the slot is free, for another
    /// request that begins alike.
    pub tokens: Vec<u32>,
    /// When it was let go of; 0 where never.
    pub freed: u64,
    /// The number of the cache's first tokens that were read in whole chunks.
    pub chunked: usize,
    pub state: State,
}

#[derive(Debug)]
pub(super) enum State {
    Free,
    /// Kept for another sample of a prompt that is being read.
    Reserved,
    Running(Box<Sequence>),
    /// A text that is embedded.
    Embedding(Box<Embedding>),
}

/// A text that has a slot, and what was read of it.
#[derive(Debug)]
pub(super) struct Embedding {
    pub request: RequestId,
    /// The text's number in the request.
    pub text: usize,
    /// Its place among all that were given slots.
    pub order: u64,
    /// The sum of the final hidden states so far.
    pub sum: Vec<f64>,
}

/// A sample that has a slot.
#[derive(Debug)]
pub(super) struct Sequence {
    pub request: RequestId,
    pub sample: Sample,
    /// The prompt's other samples and the slots kept for them, until it is read.
    pub siblings: Vec<(usize, Sample)>,
    /// Its request's place among all that were given slots.
    pub order: u64,
    /// The number of tokens that may follow.
    pub left: usize,
    pub stop_tokens: Arc<[u32]>,
    /// True if what the cache has not seen is a prompt, or a context that slid, rather than a token just made.
    pub reading: bool,
    pub truncated_prompt: usize,
    pub reused_prompt: usize,
    pub slides: usize,
    /// True if it keeps its slot without being given passes.
    pub paused: bool,
}

impl Sequence {
    /// Another sample at the same point.
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
        }
    }

    pub fn ended(&self, finish: Finish) -> Ended {
        Ended {
            finish,
            truncated_prompt: self.truncated_prompt,
            reused_prompt: self.reused_prompt,
            slides: self.slides,
        }
    }
}

impl<B: Backend> Slot<B> {
    pub fn new(model: &DecoderConfig, capacity: usize, device: &Device<B>) -> Self {
        Self {
            cache: KvCache::new(model, 1, capacity, device),
            tokens: Vec::new(),
            freed: 0,
            chunked: 0,
            state: State::Free,
        }
    }

    pub fn is_free(&self) -> bool {
        matches!(self.state, State::Free)
    }

    /// Tokens that the cache has yet to see.
    pub fn unseen(&self) -> usize {
        self.tokens.len().saturating_sub(self.cache.len())
    }

    /// Lets go of it; what the cache holds stays for reuse.
    pub fn free(&mut self, now: u64) {
        self.tokens.truncate(self.cache.len());
        self.freed = now;
        self.state = State::Free;
    }

    /// Forgets what the cache holds.
    pub fn forget(&mut self) {
        self.tokens.clear();
        self.cache.clear();
        self.chunked = 0;
    }

    /// The number of the first tokens of `wanted` that the cache can give; with `chunk`, only those of whole chunks of that many
    /// tokens that were read as such.
    fn shared(&self, wanted: &[u32], chunk: Option<usize>) -> usize {
        let held = self.tokens.iter().take(self.cache.len());
        let common = held.zip(wanted).take_while(|(a, b)| a == b).count();
        let common = chunk.map_or(common, |chunk| {
            let chunked = common.min(self.chunked);
            chunked - chunked % chunk
        });
        self.cache.reusable(common)
    }

    /// Forgets all but the newest half of a full context, which is then read again.
    pub fn slide(&mut self) {
        let kept = (self.cache.capacity() / 2).max(1);
        self.tokens.drain(..self.tokens.len().saturating_sub(kept));
        self.cache.clear();
        self.chunked = 0;
    }
}

/// Chooses a free slot for `prompt`, puts as much of the prompt into its cache as any slot's cache holds, and gives the slot
/// and how many tokens that are; none where no slot is free. The last token is never among them: its logits are asked for.
///
/// A free slot that holds little more than the prompt's beginning continues from it. One that holds much more keeps that,
/// as a running one does, and the beginning is copied, into the slot that was let go of the longest ago.
///
/// With `chunk`, only whole chunks of that many tokens are reused.
pub(super) fn take<B: Backend>(
    slots: &mut [Slot<B>],
    prompt: &[u32],
    chunk: Option<usize>,
) -> Option<(usize, usize)> {
    let oldest = oldest_free(slots)?;
    let wanted = prompt.split_last().map_or(prompt, |(_, before)| before);
    let shares = slots.iter().map(|slot| match slot.state {
        State::Reserved => 0,
        State::Free | State::Running(_) | State::Embedding(_) => slot.shared(wanted, chunk),
    });
    // Of equal ones a free one, which may need no copy.
    let donor = shares
        .enumerate()
        .max_by_key(|&(at, shared)| (shared, slots[at].is_free(), Reverse(at)));
    let (slot, shared) = match donor {
        Some((donor, shared)) if shared > 0 => {
            let mostly = shared * 2 >= slots[donor].cache.len();
            let stays = slots[donor].is_free() && mostly || donor == oldest;
            let slot = if stays { donor } else { oldest };
            let held = match slots.get_disjoint_mut([donor, slot]) {
                Ok([donor, slot]) => slot.cache.copy_from(&donor.cache, shared),
                Err(_) => slots[slot].cache.truncate(shared),
            };
            (slot, held)
        }
        _ => {
            slots[oldest].cache.clear();
            (oldest, 0)
        }
    };
    slots[slot].chunked = chunk.map_or(0, |_| shared);
    slots[slot].tokens.clear();
    slots[slot].tokens.extend_from_slice(prompt);
    Some((slot, shared))
}

/// The free slot that was let go of the longest ago.
pub(super) fn oldest_free<B: Backend>(slots: &[Slot<B>]) -> Option<usize> {
    let free = slots.iter().enumerate().filter(|(_, slot)| slot.is_free());
    free.min_by_key(|(_, slot)| slot.freed).map(|(at, _)| at)
}
