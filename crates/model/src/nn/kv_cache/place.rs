//! Writing tokens to a cache.

use burn::tensor::Tensor;
use emberlm_kernels::Backend;

use super::CacheFormat;
use super::tokens::CachedTokens;

/// A place for new tokens.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Rows before the tokens.
    pub(super) start: usize,
    /// Rows that are never dropped.
    pub(super) head: usize,
    /// Rows after these to drop.
    pub(super) dropped: usize,
    pub(super) format: CacheFormat,
}

impl Place {
    /// Puts new tokens there, and returns them with the ones before.
    pub(super) fn put<B: Backend>(
        self,
        held: &mut Option<CachedTokens<B>>,
        new: Tensor<B, 4>,
    ) -> CachedTokens<B> {
        let new = CachedTokens::of(new, self.format);
        match self.dropped {
            0 => write(held, new, self.start),
            dropped => shift(held, new, self.start, self.head, dropped),
        }
    }
}

/// Writes `new` after the first `start` rows and returns the rows up to its end.
pub(super) fn write<B: Backend>(
    held: &mut Option<CachedTokens<B>>,
    new: CachedTokens<B>,
    start: usize,
) -> CachedTokens<B> {
    let end = start + new.len();
    let all = match held.take() {
        Some(all) => all.write(new, start),
        None => new,
    };
    let seen = all.clone().narrow(0, end);
    *held = Some(all);
    seen
}

/// Returns the first `start` rows followed by `new`, and stores them without the first `dropped` rows after the head.
fn shift<B: Backend>(
    held: &mut Option<CachedTokens<B>>,
    new: CachedTokens<B>,
    start: usize,
    head: usize,
    dropped: usize,
) -> CachedTokens<B> {
    let Some(memory) = held.take() else {
        return new;
    };
    let all = match start {
        0 => new,
        _ => memory.clone().narrow(0, start).followed_by(new),
    };
    let first = head + dropped;
    let kept = all.clone().narrow(first, all.len() - first);
    let memory = match head {
        0 => memory,
        _ => memory.write(all.clone().narrow(0, head), 0),
    };
    *held = Some(memory.write(kept, head));
    all
}
