//! Hashes of a file's blocks of 1 MiB, which allow part of a file to be verified without reading all of it.
//!
//! The hash of a block is the chaining value of its subtree in the BLAKE3 tree of the file. Block hashes therefore
//! combine to the BLAKE3 of the whole file, which the manifest contains, so they need not be trusted. A file of at
//! most one block needs none, since the hash of the file is sufficient.

use blake3::Hasher;
use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};

/// The number of bytes in a block, a power of two.
pub(crate) const BLOCK_BYTES: u64 = 1 << 20;

/// The hashes of a file's blocks in order. Empty for a file of at most one block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockHashes(Vec<ChainingValue>);

impl BlockHashes {
    /// Parses concatenated hashes in hexadecimal.
    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        let (digits, rest) = text.as_bytes().as_chunks::<64>();
        let hash = |digits| blake3::Hash::from_hex(digits).ok().map(ChainingValue::from);
        let hashes: Option<Vec<ChainingValue>> = digits.iter().map(hash).collect();
        hashes.filter(|_| rest.is_empty()).map(Self)
    }

    /// The concatenated hashes in hexadecimal.
    pub(crate) fn to_hex(&self) -> String {
        let hex = |hash: &ChainingValue| blake3::Hash::from_bytes(*hash).to_hex().to_string();
        self.0.iter().map(hex).collect()
    }

    /// Returns true if there are no hashes.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if these are the block hashes of a file of `bytes` bytes whose BLAKE3 is `whole`.
    pub(crate) fn belong_to(&self, bytes: u64, whole: &blake3::Hash) -> bool {
        match self.0.len() {
            0 => bytes <= BLOCK_BYTES,
            1 => false,
            count => count as u64 == bytes.div_ceil(BLOCK_BYTES) && self.combined() == Some(*whole),
        }
    }

    /// Returns true if `bytes` match the hash of block `index`.
    pub(crate) fn matches(&self, index: u64, bytes: &[u8]) -> bool {
        let expected = usize::try_from(index).ok().and_then(|at| self.0.get(at));
        !bytes.is_empty() && expected == Some(&block_hash(index, bytes))
    }

    /// The offset of the first block whose hash differs from `other`, or that only one of them has.
    pub(crate) fn first_difference(&self, other: &Self) -> Option<u64> {
        let same = self
            .0
            .iter()
            .zip(&other.0)
            .take_while(|(one, two)| one == two);
        let same = same.count();
        (same < self.0.len().max(other.0.len())).then_some(same as u64 * BLOCK_BYTES)
    }

    /// The BLAKE3 of the whole file, if there are at least two blocks.
    fn combined(&self) -> Option<blake3::Hash> {
        let (left, right) = halves(&self.0)?;
        Some(merge_subtrees_root(
            &subtree(left),
            &subtree(right),
            Mode::Hash,
        ))
    }
}

fn block_hash(index: u64, bytes: &[u8]) -> ChainingValue {
    let mut hasher = Hasher::new();
    hasher.set_input_offset(index * BLOCK_BYTES).update(bytes);
    hasher.finalize_non_root()
}

/// Divides `blocks` into the two subtrees below the root. The left one is the largest complete tree that leaves at
/// least one block for the right one.
fn halves(blocks: &[ChainingValue]) -> Option<(&[ChainingValue], &[ChainingValue])> {
    (blocks.len() > 1).then(|| blocks.split_at(blocks.len().next_power_of_two() / 2))
}

fn subtree(blocks: &[ChainingValue]) -> ChainingValue {
    match halves(blocks) {
        Some((left, right)) => merge_subtrees_non_root(&subtree(left), &subtree(right), Mode::Hash),
        None => blocks.first().copied().unwrap_or_default(),
    }
}

/// The BLAKE3 of a file and the hashes of its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileHashes {
    /// BLAKE3 of the whole file, in hexadecimal.
    pub(crate) blake3: String,
    /// The hashes of its blocks.
    pub(crate) blocks: BlockHashes,
}

/// Hashes a file's bytes in order, using all threads.
#[derive(Debug, Default)]
pub(crate) struct BlockHasher {
    /// The hashes of the blocks before the open one.
    done: Vec<ChainingValue>,
    /// The open block. It is empty only if the file is.
    open: Hasher,
}

impl BlockHasher {
    /// Adds the next bytes.
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.open.count() == BLOCK_BYTES {
                self.done.push(self.open.finalize_non_root());
                self.open = Hasher::new();
                let offset = self.done.len() as u64 * BLOCK_BYTES;
                self.open.set_input_offset(offset);
            }
            let room = usize::try_from(BLOCK_BYTES - self.open.count()).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.open.update_rayon(now);
            bytes = later;
        }
    }

    /// The hashes of all bytes added so far.
    pub(crate) fn finish(&self) -> FileHashes {
        let mut blocks = BlockHashes(self.done.clone());
        if !self.done.is_empty() {
            blocks.0.push(self.open.finalize_non_root());
        }
        let whole = blocks.combined();
        let whole = whole.unwrap_or_else(|| self.open.finalize());
        FileHashes {
            blake3: whole.to_hex().to_string(),
            blocks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = BLOCK_BYTES as usize;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    fn hashes(bytes: &[u8], step: usize) -> FileHashes {
        let mut hasher = BlockHasher::default();
        bytes.chunks(step).for_each(|part| hasher.update(part));
        hasher.finish()
    }

    #[test]
    fn combined_hash_is_the_blake3_of_the_file() {
        let lengths = [
            0,
            1,
            1024,
            MIB - 1,
            MIB,
            MIB + 1,
            2 * MIB,
            3 * MIB + 5,
            5 * MIB,
            9 * MIB + 1,
        ];
        for len in lengths {
            let file = bytes(len);
            let found = hashes(&file, 700_001);
            let whole = blake3::hash(&file);
            assert_eq!(found.blake3, whole.to_hex().to_string(), "{len}");
            assert_eq!(found, hashes(&file, MIB), "{len}");
            assert_eq!(found.blocks.is_empty(), len <= MIB, "{len}");
            assert!(found.blocks.belong_to(len as u64, &whole), "{len}");
            for (index, block) in (0..).zip(file.chunks(MIB)).filter(|_| len > MIB) {
                assert!(found.blocks.matches(index, block));
                let mut other = block.to_vec();
                other[block.len() / 2] ^= 1;
                assert!(!found.blocks.matches(index, &other));
            }
        }
    }

    #[test]
    fn block_hashes_of_another_file_are_rejected() {
        let (file, mut other) = (bytes(3 * MIB), bytes(3 * MIB));
        other[2 * MIB] ^= 1;
        let whole = blake3::hash(&file);
        let found = hashes(&other, MIB).blocks;
        assert!(!found.belong_to(file.len() as u64, &whole));
        let right = hashes(&file, MIB).blocks;
        assert!(!right.belong_to(file.len() as u64 + 1, &whole));
        assert!(!BlockHashes::default().belong_to(file.len() as u64, &whole));
    }

    #[test]
    fn hexadecimal_round_trips_and_invalid_text_is_rejected() {
        let found = hashes(&bytes(3 * MIB), MIB).blocks;
        let hex = found.to_hex();
        assert_eq!(hex.len(), 3 * 64);
        assert_eq!(BlockHashes::from_hex(&hex), Some(found));
        assert_eq!(BlockHashes::from_hex(&hex[1..]), None);
        assert_eq!(BlockHashes::from_hex(&"x".repeat(64)), None);
    }
}
