//! A per-thread cache of the ids of recent pieces. Most pieces of a text are repeated.

/// The longest cached piece, in bytes.
const MAX_BYTES: usize = 32;

/// The most ids of a cached piece.
const MAX_IDS: usize = 7;

/// The number of hash bits that select a slot. 65,536 slots of 64 bytes take 4 MiB.
const SLOT_BITS: u32 = 16;

/// A direct-mapped cache: each piece has one slot, which holds the latest piece.
#[derive(Debug)]
pub(crate) struct PieceCache {
    slots: Box<[Slot]>,
}

/// A piece and its ids, in one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Slot {
    key: Key,
    ids: [u32; MAX_IDS],
    /// The number of ids. 0 marks an empty slot.
    count: u8,
}

/// A piece's zero-padded bytes and length. Keys are equal only for equal pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Key {
    words: [u64; MAX_BYTES / 8],
    len: u8,
}

impl Key {
    /// Creates the key of the first `len` bytes of `text`. Returns `None` if the piece is too long to be
    /// cached.
    pub(crate) fn new(text: &[u8], len: usize) -> Option<Self> {
        if len > MAX_BYTES {
            return None;
        }
        // Reading past the piece and masking the excess is several times faster than copying exactly `len`
        // bytes.
        let (words, _) = match text.get(..MAX_BYTES) {
            Some(bytes) => bytes.as_chunks::<8>(),
            None => {
                let mut bytes = [0; MAX_BYTES];
                bytes[..text.len()].copy_from_slice(text);
                return Self::new(&bytes, len);
            }
        };
        let word = |at: usize| {
            let kept = len.saturating_sub(8 * at).min(8);
            let mask = u64::MAX.checked_shr(64 - 8 * kept as u32).unwrap_or(0);
            u64::from_le_bytes(words[at]) & mask
        };
        Some(Self {
            words: [word(0), word(1), word(2), word(3)],
            len: len as u8,
        })
    }

    fn equals(&self, other: &Self) -> bool {
        let pairs = self.words.iter().zip(&other.words);
        let differences = pairs.fold(0, |sum, (one, two)| sum | (one ^ two));
        differences == 0 && self.len == other.len
    }

    /// Returns the piece's slot: the high bits of a multiplicative hash, which depend on all others.
    fn slot(&self) -> usize {
        const ODD: u64 = 0x9E37_79B9_7F4A_7C15; // 2^64 divided by the golden ratio
        let mix = |hash: u64, word: &u64| (hash.rotate_left(23) ^ word).wrapping_mul(ODD);
        let hash = self.words.iter().fold(u64::from(self.len), mix);
        (hash >> (64 - SLOT_BITS)) as usize
    }
}

impl PieceCache {
    pub(crate) fn new() -> Self {
        Self {
            slots: vec![Slot::default(); 1 << SLOT_BITS].into_boxed_slice(),
        }
    }

    /// Appends the ids of the piece and returns true, if it is cached.
    #[inline]
    pub(crate) fn get(&self, key: &Key, out: &mut Vec<u32>) -> bool {
        let slot = &self.slots[key.slot()];
        let known = slot.key.equals(key) && slot.count > 0;
        if known {
            // Copying all ids and truncating is faster, because the length is known at compile time.
            let len = out.len() + usize::from(slot.count);
            out.extend_from_slice(&slot.ids);
            out.truncate(len);
        }
        known
    }

    /// Caches the ids of a piece, replacing its slot's content. Does nothing if there are too many ids.
    pub(crate) fn put(&mut self, key: Key, ids: &[u32]) {
        if ids.is_empty() || ids.len() > MAX_IDS {
            return;
        }
        let slot = &mut self.slots[key.slot()];
        slot.key = key;
        slot.count = ids.len() as u8;
        slot.ids[..ids.len()].copy_from_slice(ids);
    }
}
