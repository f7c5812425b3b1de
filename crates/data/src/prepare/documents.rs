//! Detection of byte-identical documents.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::Split;

/// The maximum number of distinct documents that are remembered only to count duplicates. They take about 70 MB.
const MAX_COUNTED: usize = 1_800_000;

/// BLAKE3 of a document's text.
pub(super) type Hash = blake3::Hash;

/// The first 128 bits of a hash. Among a trillion documents, the probability that two different ones collide is
/// 1e-15.
type Key = [u8; 16];

/// The documents seen so far.
pub(super) struct SeenDocuments {
    dedup: bool,
    max_counted: usize,
    /// The split of the first document with each text. `None` after [`MAX_COUNTED`] distinct documents, unless
    /// duplicates are dropped.
    seen: Option<HashMap<Key, Split>>,
    counts: Counts,
}

/// The number of documents, and of duplicates among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// All documents, including dropped ones.
    pub(super) documents: u64,
    /// Documents that equal an earlier one.
    pub(super) duplicates: u64,
    /// Validation documents that equal a training document.
    pub(super) leaked: u64,
    /// Documents that were compared.
    pub(super) compared: u64,
}

impl SeenDocuments {
    /// No documents yet. If `dedup` is set, duplicates are dropped.
    pub(super) fn new(dedup: bool) -> Self {
        Self {
            dedup,
            max_counted: MAX_COUNTED,
            seen: Some(HashMap::new()),
            counts: Counts::default(),
        }
    }

    /// Returns true if documents are still compared, so that their hashes are needed.
    pub(super) fn compares(&self) -> bool {
        self.seen.is_some()
    }

    /// Adds a document of `split`. Returns true if it is a duplicate that must be dropped.
    pub(super) fn insert(&mut self, hash: Option<&Hash>, split: Split) -> bool {
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
        if !self.dedup && seen.len() >= self.max_counted {
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

    fn insert(documents: &mut SeenDocuments, text: &str, split: Split) -> bool {
        let hash = blake3::hash(text.as_bytes());
        documents.insert(Some(&hash), split)
    }

    #[test]
    fn duplicates_and_leaks_are_counted_and_dropped_on_request() {
        for dedup in [false, true] {
            let mut documents = SeenDocuments::new(dedup);
            let all = [
                ("a", Train),
                ("b", Train),
                ("a", Train),
                ("c", Val),
                ("c", Val),
                ("b", Val),
            ];
            let left_out = all.map(|(text, split)| insert(&mut documents, text, split));
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
    fn memory_limit_ends_counting_but_not_deduplication() {
        for (dedup, duplicates) in [(false, 1), (true, 2)] {
            let mut documents = SeenDocuments {
                max_counted: 2,
                ..SeenDocuments::new(dedup)
            };
            for text in ["a", "a", "b", "a", "c"] {
                insert(&mut documents, text, Train);
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
