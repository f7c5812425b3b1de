//! Encodes a text piece by piece, for all vocabularies that split by a known pattern.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use regex_automata::hybrid::dfa::Cache;

use crate::piece_cache::{Key, PieceCache};
use crate::splitter::Splitter;

/// The longest piece that is encoded at once, in bytes. Longer ones are encoded in chunks of this length,
/// rounded down to a character boundary.
pub(crate) const LONGEST_PIECE: usize = 256 << 10;

/// The maximum number of vocabularies with cached state per thread. The least recently used is evicted.
/// Comparing tokenizers alternates between several.
const MAX_VOCABULARIES: usize = 8;

thread_local! {
    /// This thread's encoder states by vocabulary, the most recently used last.
    static STATES: RefCell<Vec<(u64, ThreadState)>> = const { RefCell::new(Vec::new()) };
}

/// One thread's caches for one vocabulary: at most 6 MiB.
struct ThreadState {
    dfa_cache: Cache,
    pieces: PieceCache,
}

/// Splits texts and encodes only pieces that are not cached.
#[derive(Debug)]
pub(crate) struct FastEncoder {
    splitter: Splitter,
    /// The process-wide id of this vocabulary.
    vocabulary: u64,
}

impl FastEncoder {
    /// Creates an encoder for a vocabulary that splits by `pattern`. Returns `None` if the pattern is not a
    /// known one.
    pub(crate) fn new(pattern: &str) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Some(Self {
            splitter: Splitter::new(pattern)?,
            vocabulary: NEXT.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// Encodes `text`. Pieces longer than [`LONGEST_PIECE`] are encoded in chunks. `encode_piece` appends the
    /// ids of a piece, which must depend only on the piece.
    pub(crate) fn encode<E>(
        &self,
        text: &str,
        mut encode_piece: impl FnMut(&str, &mut Vec<u32>) -> Result<(), E>,
    ) -> Result<Vec<u32>, E> {
        let mut state = self.take_state();
        let mut ids = Vec::with_capacity(text.len() / 4);
        let mut start = 0;
        let mut outcome = Ok(());
        while start < text.len() && outcome.is_ok() {
            let end = self.splitter.piece_end(&mut state.dfa_cache, text, start);
            let piece = &text[start..end];
            let key = Key::new(&text.as_bytes()[start..], piece.len());
            start = end;
            match key {
                None if piece.len() > LONGEST_PIECE => {
                    outcome = parts(piece).try_for_each(|part| encode_piece(part, &mut ids));
                }
                Some(key) if state.pieces.get(&key, &mut ids) => {}
                Some(key) => {
                    let first = ids.len();
                    outcome = encode_piece(piece, &mut ids);
                    if outcome.is_ok() {
                        state.pieces.put(key, &ids[first..]);
                    }
                }
                None => outcome = encode_piece(piece, &mut ids),
            }
        }
        self.return_state(state);
        outcome.map(|()| ids)
    }

    /// Returns the last position within `most` bytes at which a piece ends. `None` if the first piece is
    /// longer.
    pub(crate) fn last_piece_end(&self, text: &str, most: usize) -> Option<usize> {
        let mut state = self.take_state();
        let mut last = 0;
        while last < text.len() {
            let end = self.splitter.piece_end(&mut state.dfa_cache, text, last);
            if end > most {
                break;
            }
            last = end;
        }
        self.return_state(state);
        (last > 0).then_some(last)
    }

    /// Calls `visit` with every piece of `text`.
    pub(crate) fn pieces<'a>(&self, text: &'a str, mut visit: impl FnMut(&'a str)) {
        let mut state = self.take_state();
        let mut start = 0;
        while start < text.len() {
            let end = self.splitter.piece_end(&mut state.dfa_cache, text, start);
            visit(&text[start..end]);
            start = end;
        }
        self.return_state(state);
    }

    /// Takes this thread's state, or creates one.
    fn take_state(&self) -> ThreadState {
        let mine = |kept: &mut Vec<(u64, ThreadState)>| {
            let at = kept.iter().position(|(id, _)| *id == self.vocabulary)?;
            Some(kept.remove(at).1)
        };
        let taken = STATES.with(|kept| mine(&mut kept.borrow_mut()));
        taken.unwrap_or_else(|| ThreadState {
            dfa_cache: self.splitter.cache(),
            pieces: PieceCache::new(),
        })
    }

    fn return_state(&self, state: ThreadState) {
        STATES.with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() >= MAX_VOCABULARIES {
                kept.remove(0);
            }
            kept.push((self.vocabulary, state));
        });
    }
}

/// Splits a long piece at character boundaries into chunks of at most [`LONGEST_PIECE`] bytes.
fn parts(mut rest: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (part, after) = rest.split_at(rest.floor_char_boundary(LONGEST_PIECE));
        rest = after;
        Some(part).filter(|part| !part.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Tokenizer;
    use crate::test_texts::{BYTE_PAIRS, FILES, arbitrary_text};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]
        #[test]
        fn ids_match_tiktoken(text in arbitrary_text()) {
            let cores = [
                tiktoken_rs::r50k_base_singleton(),
                tiktoken_rs::p50k_base_singleton(),
                tiktoken_rs::cl100k_base_singleton(),
                tiktoken_rs::o200k_base_singleton(),
            ];
            for (kind, core) in BYTE_PAIRS.into_iter().zip(cores) {
                let tokenizer = Tokenizer::builtin(kind).unwrap();
                let ids = tokenizer.encode(&text).unwrap();
                prop_assert_eq!(&ids, &core.encode_ordinary(&text), "{}", kind);
                prop_assert_eq!(tokenizer.decode(&ids).unwrap(), text.as_str(), "{}", kind);
            }
        }

        #[test]
        fn ids_match_the_tokenizers_crate(text in arbitrary_text()) {
            thread_local! {
                static CRATES: Vec<tokenizers::Tokenizer> = FILES.iter().map(|(json, _)| {
                    let mut crates: tokenizers::Tokenizer = serde_json::from_slice(json).unwrap();
                    crates.set_encode_special_tokens(true);
                    crates
                }).collect();
            }
            for (at, (_, tokenizer)) in FILES.iter().enumerate() {
                let expected = CRATES.with(|crates| crates[at].encode_fast(text.as_str(), false).unwrap());
                prop_assert_eq!(tokenizer.encode(&text).unwrap(), expected.get_ids(), "pattern {}", at);
            }
        }
    }

    #[test]
    fn thread_states_are_bounded_and_vocabularies_do_not_mix() {
        let kinds = BYTE_PAIRS.map(|kind| Tokenizer::builtin(kind).unwrap());
        let files = FILES.iter().map(|(_, tokenizer)| tokenizer);
        let all: Vec<&Tokenizer> = kinds.iter().chain(files).collect();
        let text = "It's twelve o'clock, 1234 words";
        let first: Vec<_> = all.iter().map(|one| one.encode(text).unwrap()).collect();
        let again: Vec<_> = all.iter().map(|one| one.encode(text).unwrap()).collect();
        assert_eq!(first, again);
        assert_eq!(STATES.with(|kept| kept.borrow().len()), MAX_VOCABULARIES);
    }

    /// A matcher that restarts at every space, or an encoder that searches all merges each time, takes minutes.
    #[test]
    fn long_runs_are_encoded_quickly() {
        let file = &FILES[3].1;
        let kinds = BYTE_PAIRS.map(|kind| Tokenizer::builtin(kind).unwrap());
        let [gpt2, p50k, cl100k, o200k] = &kinds;
        for (tokenizer, piece) in [
            (gpt2, "a"),
            (p50k, " "),
            (cl100k, "\n"),
            (o200k, "'"),
            (file, " "),
            (file, "漢"),
        ] {
            let text = piece.repeat(1_000_000 / piece.len()) + "x";
            let ids = tokenizer.encode(&text).unwrap();
            assert_eq!(tokenizer.decode(&ids).unwrap(), text);
        }
    }
}
