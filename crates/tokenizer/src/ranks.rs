//! A byte-pair vocabulary by rank, as tiktoken has it, and the ids of one piece.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ahash::AHashMap;

/// No pair: no id is as high.
const NONE: u32 = u32::MAX;

/// The number of bits of a waiting pair that hold its place; those above are its id, the order in which pairs are merged.
const PLACE_BITS: u32 = 40;

/// Tokens that are bytes and ids, which are also the order in which neighbours are merged.
#[derive(Debug, Default)]
pub(crate) struct Ranks {
    ids: AHashMap<&'static [u8], u32>,
}

impl Ranks {
    /// The vocabulary of `tokens`, whose ids are below 2^24. Every single byte must be among them.
    pub(crate) fn new(tokens: impl IntoIterator<Item = (u32, &'static [u8])>) -> Self {
        Self {
            ids: tokens.into_iter().map(|(id, bytes)| (bytes, id)).collect(),
        }
    }

    /// Appends the ids of a piece: its own where it is a token, else those that are left when of two neighbours that
    /// make a token the pair of the lowest id has been merged, the leftmost first, until no two make one.
    ///
    /// Takes `n log n` steps for `n` bytes, where a search of the lowest pair at each merge takes `n²`.
    pub(crate) fn encode_piece(&self, piece: &[u8], out: &mut Vec<u32>) {
        if let Some(&id) = self.ids.get(piece) {
            out.push(id);
            return;
        }
        let len = piece.len();
        let id = |start: usize, end: usize| self.ids.get(&piece[start..end]).copied();
        // By where a part begins: where it ends, which is where the next one begins; where the one before begins; and the
        // id that it makes with the next one.
        // In 32 bits, since no piece is longer than `cut::LONGEST_PIECE`.
        let mut ends: Vec<u32> = (1..=len as u32).collect();
        let mut before: Vec<u32> = (0..len as u32).map(|at| at.saturating_sub(1)).collect();
        let pair_at = |at| if at + 2 <= len { id(at, at + 2) } else { None };
        let mut pairs: Vec<u32> = (0..len).map(|at| pair_at(at).unwrap_or(NONE)).collect();
        let waiting = |id: u32, start: usize| Reverse(u64::from(id) << PLACE_BITS | start as u64);
        let first = (0..len).filter(|&at| pairs[at] != NONE);
        let mut queue: BinaryHeap<_> = first.map(|at| waiting(pairs[at], at)).collect();
        while let Some(Reverse(next)) = queue.pop() {
            let start = (next & ((1 << PLACE_BITS) - 1)) as usize;
            // One of its parts has been merged otherwise meanwhile.
            if u64::from(pairs[start]) != next >> PLACE_BITS {
                continue;
            }
            let middle = ends[start] as usize;
            let end = ends[middle] as usize;
            ends[start] = end as u32;
            pairs[middle] = NONE;
            let mut renew = |start: usize, end: Option<usize>| {
                let made = end.and_then(|end| id(start, end));
                pairs[start] = made.unwrap_or(NONE);
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
