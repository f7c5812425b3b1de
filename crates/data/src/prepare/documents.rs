//! Which documents are equal, byte for byte.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::Split;

/// The number of different documents that are remembered where they need not be: some 70 MB.
const MOST_COUNTED: usize = 1_800_000;

/// BLAKE3 of a document's text.
pub(super) type Hash = blake3::Hash;

/// A hash's first 128 bits: among a trillion documents the chance that two different ones agree is 1e-15.
type Key = [u8; 16];

/// The documents seen so far.
pub(super) struct Documents {
    dedup: bool,
    most_counted: usize,
    /// Each text's first split; `None` once there were too many to count.
    seen: Option<HashMap<Key, Split>>,
    counts: Counts,
}

/// The number of documents, and the number of those that occurred before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// All, those that were left out too.
    pub(super) documents: u64,
    /// Equal to an earlier one.
    pub(super) duplicates: u64,
    /// Of the validation split, and equal to one for training.
    pub(super) leaked: u64,
    /// The number of documents that were compared.
    pub(super) compared: u64,
}

impl Documents {
    /// None yet; `dedup` is whether duplicates are to be left out.
    pub(super) fn new(dedup: bool) -> Self {
        Self {
            dedup,
            most_counted: MOST_COUNTED,
            seen: Some(HashMap::new()),
            counts: Counts::default(),
        }
    }

    /// Returns true if hashes are of any more use.
    pub(super) fn compares(&self) -> bool {
        self.seen.is_some()
    }

    /// Takes another document into account, whose hash is known where it is of use; true where it is to be left out.
    pub(super) fn meet(&mut self, hash: Option<&Hash>, split: Split) -> bool {
        self.counts.documents += 1;
        let (Some(seen), Some(hash)) = (&mut self.seen, hash) else {
            return false;
        };
        self.counts.compared += 1;
        match seen.entry(key(hash)) {
            Entry::Vacant(entry) => {
                entry.insert(split);
            }
            Entry::Occupied(first) => {
                self.counts.duplicates += 1;
                let leaked = split == Split::Val && *first.get() == Split::Train;
                self.counts.leaked += u64::from(leaked);
                return self.dedup;
            }
        }
        if !self.dedup && seen.len() >= self.most_counted {
            self.seen = None;
        }
        false
    }

    /// The counts.
    pub(super) fn counts(&self) -> Counts {
        self.counts
    }
}

fn key(hash: &Hash) -> Key {
    let mut key = [0; 16];
    key.copy_from_slice(&hash.as_bytes()[..16]);
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use Split::{Train, Val};

    fn meet(documents: &mut Documents, text: &str, split: Split) -> bool {
        let hash = blake3::hash(text.as_bytes());
        documents.meet(Some(&hash), split)
    }

    #[test]
    fn later_duplicates_and_leaks_are_counted_and_left_out_on_request() {
        for dedup in [false, true] {
            let mut documents = Documents::new(dedup);
            let all = [
                ("a", Train),
                ("b", Train),
                ("a", Train),
                ("c", Val),
                ("c", Val),
                ("b", Val),
            ];
            let left_out = all.map(|(text, split)| meet(&mut documents, text, split));
            assert_eq!(left_out, [false, false, dedup, false, dedup, dedup]);
            let counts = documents.counts();
            assert_eq!(
                (
                    counts.documents,
                    counts.duplicates,
                    counts.leaked,
                    counts.compared
                ),
                (6, 3, 1, 6)
            );
        }
    }

    #[test]
    fn counting_ends_where_it_would_take_too_much_memory_but_leaving_out_does_not() {
        for (dedup, duplicates) in [(false, 1), (true, 2)] {
            let mut documents = Documents {
                most_counted: 2,
                ..Documents::new(dedup)
            };
            for text in ["a", "a", "b", "a", "c"] {
                meet(&mut documents, text, Train);
            }
            let counts = documents.counts();
            assert_eq!(
                (counts.documents, counts.duplicates),
                (5, duplicates),
                "{dedup}"
            );
            assert_eq!(documents.compares(), dedup);
        }
    }
}
