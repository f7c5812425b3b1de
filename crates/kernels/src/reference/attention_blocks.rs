//! The division of attention into blocks that bound the number of scores in memory.

use std::ops::Range;

use crate::Reach;

/// GPU matrix products are fastest if their dimensions are multiples of this.
pub(super) const SIDE: usize = 64;

/// The size of the blocks whose scores are materialized at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionBlocks {
    /// The number of sequences in a block, at least 1.
    pub sequences: usize,
    /// The number of queries per head of a sequence, at least 1.
    pub queries: usize,
}

impl AttentionBlocks {
    /// Blocks for `q_len` queries of `heads` heads of `batch` sequences over `k_len` keys: as many queries as
    /// `bytes` of f32 scores allow, in multiples of 64. If not even 64 queries of every sequence fit, a block has
    /// fewer sequences.
    pub fn new([batch, heads, q_len]: [usize; 3], k_len: usize, bytes: u64) -> Self {
        let scores = (bytes / 4) as usize;
        let of_a_query = (heads * k_len).max(1);
        let least = q_len.clamp(1, SIDE);
        let sequences = (scores / (of_a_query * least)).clamp(1, batch.max(1));
        let queries = scores / (of_a_query * sequences) / SIDE * SIDE;
        Self {
            sequences,
            queries: queries.max(SIDE),
        }
    }

    /// Returns true if a single block covers everything.
    pub fn is_single(self, batch: usize, q_len: usize) -> bool {
        batch <= self.sequences && q_len <= self.queries
    }

    /// The ranges of sequences of the blocks.
    pub(super) fn sequence_ranges(self, batch: usize) -> impl Iterator<Item = Range<usize>> {
        ranges(batch, self.sequences)
    }

    /// The ranges of queries of the blocks.
    pub(super) fn query_ranges(
        self,
        q_len: usize,
    ) -> impl DoubleEndedIterator<Item = Range<usize>> {
        ranges(q_len, self.queries)
    }
}

/// Returns a range that covers the keys visible to some of the `queries`, for `q_len` queries over `k_len` keys
/// in total. With full reach these are all keys. Otherwise the range ends at the last query's own key, or at the
/// last key within the distance of a local reach. A local reach, and a window without global tokens, also bound
/// the start, which is rounded down to a multiple of 64.
pub(crate) fn visible_keys(
    queries: &Range<usize>,
    [q_len, k_len]: [usize; 2],
    reach: Reach,
) -> Range<usize> {
    if reach == Reach::Full {
        return 0..k_len;
    }
    let past = k_len - q_len;
    let (start, end) = (past + queries.start, past + queries.end);
    let (first, end) = match reach {
        Reach::Window {
            tokens,
            global_tokens: 0,
        } => ((start + 1).saturating_sub(tokens), end),
        Reach::Local { distance } => {
            let end = end.saturating_add(distance).min(k_len);
            (start.saturating_sub(distance), end)
        }
        Reach::Window { .. } | Reach::Causal | Reach::Full => (0, end),
    };
    first / SIDE * SIDE..end
}

fn ranges(len: usize, step: usize) -> impl DoubleEndedIterator<Item = Range<usize>> {
    let step = step.max(1);
    (0..len.div_ceil(step)).map(move |n| n * step..((n + 1) * step).min(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB_64: u64 = 64 << 20;

    fn window(tokens: usize, global_tokens: usize) -> Reach {
        Reach::Window {
            tokens,
            global_tokens,
        }
    }

    #[test]
    fn blocks_hold_64_mib_of_scores() {
        for (batch, heads, k_len) in [(1, 1, 1), (8, 12, 1024), (64, 12, 1024), (3, 32, 8192)] {
            let blocks = AttentionBlocks::new([batch, heads, k_len], k_len, MIB_64);
            let scores = blocks.sequences * heads * blocks.queries * k_len;
            assert!(scores <= 1 << 24, "{batch}, {heads}, {k_len}: {scores}");
            assert!(scores > 1 << 22 || blocks.is_single(batch, k_len));
            assert_eq!(blocks.queries % 64, 0);
        }
        // At least 64 queries for any sequence length: here 128 heads over 2^20 keys.
        let least = AttentionBlocks::new([2, 128, 1 << 20], 1 << 20, MIB_64);
        assert_eq!((least.sequences, least.queries), (1, 64));
        // One token of each of many sequences is a single block.
        assert!(AttentionBlocks::new([64, 32, 1], 4096, MIB_64).is_single(64, 1));
    }

    #[test]
    fn block_contains_every_visible_key() {
        let of = |queries, lengths, reach| visible_keys(&queries, lengths, reach);
        assert_eq!(of(64..128, [192, 192], Reach::Causal), 0..128);
        assert_eq!(of(64..128, [192, 392], Reach::Causal), 0..328);
        // The query at position 300 sees keys 201 and later.
        assert_eq!(of(100..110, [110, 310], window(100, 0)), 192..310);
        assert_eq!(of(100..110, [110, 310], window(100, 1)), 0..310);
        assert_eq!(of(0..10, [110, 110], window(usize::MAX, 0)), 0..10);
        assert_eq!(of(100..110, [310, 110], Reach::Full), 0..110);
        // The queries at positions 300 to 309 see keys 270 to 339.
        let local = Reach::Local { distance: 30 };
        assert_eq!(of(100..110, [210, 410], local), 256..340);
        assert_eq!(of(200..210, [210, 410], local), 320..410);
    }
}
