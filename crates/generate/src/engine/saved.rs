//! The cached sequences of an engine, to be kept outside of the program and restored.

use emberlm_kernels::Backend;
use emberlm_model::SavedCache;

use super::Engine;
use super::slot::Slot;

/// A sequence in the cache of a slot.
#[derive(Clone, Debug)]
pub struct CachedSequence {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// The adapter that its keys and values were computed with.
    pub adapter: Option<usize>,
    /// Number of its first tokens that were read in whole chunks.
    pub chunked: usize,
    /// The keys and values.
    pub cache: SavedCache,
}

impl<B: Backend> Engine<B> {
    /// The sequences in the caches of free slots, the least recently used one first, each without those that begin it. States
    /// that cannot be saved ([`emberlm_model::KvCache::saved`]) are left out, and so are targets of an encoder–decoder.
    pub fn cached_sequences(&self) -> impl Iterator<Item = CachedSequence> + '_ {
        let is_decoder = self.model.decoder().is_some();
        let slots = self.slots.iter();
        let slots = slots.filter(move |slot| is_decoder && slot.is_free() && slot.is_filled());
        let mut slots: Vec<&Slot<B>> = slots.collect();
        slots.sort_by_key(|slot| slot.freed);
        let begins_another = |at: usize| {
            let slot = slots[at];
            let others = slots.iter().enumerate();
            others
                .filter(|&(other, _)| other != at)
                .any(|(number, other)| {
                    let is_longer = other.sequence.tokens.len() > slot.sequence.tokens.len();
                    (is_longer || number > at) && other.holds(&slot.sequence.tokens, slot.adapter)
                })
        };
        let kept: Vec<&Slot<B>> = (0..slots.len())
            .filter(|&at| !begins_another(at))
            .map(|at| slots[at])
            .collect();
        kept.into_iter().filter_map(|slot| {
            Some(CachedSequence {
                tokens: slot.sequence.tokens.clone(),
                adapter: slot.adapter,
                chunked: slot.chunked,
                cache: slot.sequence.cache.saved()?,
            })
        })
    }

    /// Puts a sequence into the cache of a slot that has not been used, as the most recently used one. Returns false if there is
    /// none, or the sequence is not one of this model and configuration.
    pub fn restore_sequence(&mut self, sequence: CachedSequence) -> bool {
        let CachedSequence {
            tokens,
            adapter,
            chunked,
            cache,
        } = sequence;
        let (vocab_size, adapters) = (self.model.sizes().vocab_size, self.model.adapters());
        let is_valid = self.model.decoder().is_some()
            && tokens.iter().all(|&id| (id as usize) < vocab_size)
            && adapter.is_none_or(|adapter| adapter < adapters)
            && tokens.len() == cache.tokens
            && chunked <= tokens.len();
        let mut slots = self.slots.iter_mut();
        let unused = slots.find(|slot| slot.is_free() && slot.freed == 0 && !slot.is_filled());
        let Some(slot) = unused.filter(|_| is_valid) else {
            return false;
        };
        if !slot.sequence.cache.restore(cache) {
            return false;
        }
        self.freed += 1;
        slot.freed = self.freed;
        slot.sequence.tokens = tokens;
        slot.adapter = adapter;
        slot.chunked = chunked;
        true
    }
}

impl<B: Backend> Slot<B> {
    /// Returns true if the cache has a token.
    fn is_filled(&self) -> bool {
        !self.sequence.cache.is_empty()
    }

    /// Returns true if the cached tokens begin with `tokens`.
    fn holds(&self, tokens: &[u32], adapter: Option<usize>) -> bool {
        self.adapter == adapter && self.sequence.tokens.starts_with(tokens)
    }
}
