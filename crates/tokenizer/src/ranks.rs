//! Byte-pair encoding of a single piece by token ranks, as in tiktoken.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ahash::AHashMap;

/// Marks the absence of a pair. No id is this high.
const NO_PAIR: u32 = u32::MAX;

/// The low bits of a queue entry hold the pair's position. The high bits hold its id, which is its merge
/// priority.
const POSITION_BITS: u32 = 40;

/// Maps token bytes to ids. The id is also the merge rank: lower ids merge first.
#[derive(Debug, Default)]
pub(crate) struct Ranks {
    ids: AHashMap<&'static [u8], u32>,
}

impl Ranks {
    /// Creates the vocabulary of `tokens`. Ids must be below 2^24, and every single byte must be a token.
    pub(crate) fn new(tokens: impl IntoIterator<Item = (u32, &'static [u8])>) -> Self {
        Self {
            ids: tokens.into_iter().map(|(id, bytes)| (bytes, id)).collect(),
        }
    }

    /// Appends the ids of a piece. A piece that is a token gets that id. Otherwise the neighbouring pair with
    /// the lowest id is merged, the leftmost first, until no pair forms a token.
    ///
    /// Takes `O(n log n)` for `n` bytes: a heap replaces the search for the lowest pair at each merge, which
    /// would make it `O(n²)`.
    pub(crate) fn encode_piece(&self, piece: &[u8], out: &mut Vec<u32>) {
        if let Some(&id) = self.ids.get(piece) {
            out.push(id);
            return;
        }
        let len = piece.len();
        let id = |start: usize, end: usize| self.ids.get(&piece[start..end]).copied();
        // Indexed by the start of a part: `ends` is its end (and the start of the next part), `before` the
        // start of the previous part, and `pairs` the id that the part forms with the next one. 32 bits suffice
        // because pieces are at most `fast_encoder::LONGEST_PIECE` bytes.
        let mut ends: Vec<u32> = (1..=len as u32).collect();
        let mut before: Vec<u32> = (0..len as u32).map(|at| at.saturating_sub(1)).collect();
        let pair_at = |at| if at + 2 <= len { id(at, at + 2) } else { None };
        let mut pairs: Vec<u32> = (0..len).map(|at| pair_at(at).unwrap_or(NO_PAIR)).collect();
        let waiting =
            |id: u32, start: usize| Reverse(u64::from(id) << POSITION_BITS | start as u64);
        let first = (0..len).filter(|&at| pairs[at] != NO_PAIR);
        let mut queue: BinaryHeap<_> = first.map(|at| waiting(pairs[at], at)).collect();
        while let Some(Reverse(next)) = queue.pop() {
            let start = (next & ((1 << POSITION_BITS) - 1)) as usize;
            // Stale entry: one of its parts has been merged in the meantime.
            if u64::from(pairs[start]) != next >> POSITION_BITS {
                continue;
            }
            let middle = ends[start] as usize;
            let end = ends[middle] as usize;
            ends[start] = end as u32;
            pairs[middle] = NO_PAIR;
            let mut renew = |start: usize, end: Option<usize>| {
                let made = end.and_then(|end| id(start, end));
                pairs[start] = made.unwrap_or(NO_PAIR);
                queue.extend(made.map(|id| waiting(id, start)));
            };
            renew(start, ends.get(end).map(|&end| end as usize));
            if start > 0 {
                renew(before[start] as usize, Some(end));
            }
            if let Some(before) = before.get_mut(end) {
                *before = start as u32;
            }
        }
        let mut start = 0;
        while start < len {
            let end = ends[start] as usize;
            out.extend(id(start, end));
            start = end;
        }
    }
}
