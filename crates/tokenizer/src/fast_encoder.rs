//! The ids of a text, piece by piece: what the vocabularies that split by a known pattern share.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use regex_automata::hybrid::dfa::Cache;

use crate::cut::LONGEST_PIECE;
use crate::piece_cache::{Key, PieceCache};
use crate::splitter::Splitter;

/// Of how many vocabularies a thread keeps what it has worked out: those used last. Comparing tokenizers takes turns.
const KEPT: usize = 8;

thread_local! {
    /// This thread's encoders, by vocabulary, the one used last at the end.
    static WORK: RefCell<Vec<(u64, Work)>> = const { RefCell::new(Vec::new()) };
}

/// One thread's work with one vocabulary: at most 6 MiB.
struct Work {
    states: Cache,
    pieces: PieceCache,
}

/// Splits texts, and asks only for the ids of pieces that it does not remember.
#[derive(Debug)]
pub(crate) struct FastEncoder {
    splitter: Splitter,
    /// Identifies this vocabulary within the process.
    vocabulary: u64,
}

impl FastEncoder {
    /// For a vocabulary that splits by `pattern`; none where that is no known one.
    pub(crate) fn new(pattern: &str) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Some(Self {
            splitter: Splitter::new(pattern)?,
            vocabulary: NEXT.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// The ids of `text`, of whose pieces those above [`LONGEST_PIECE`] are encoded in parts; `encode_piece` appends those of a piece, which must depend only on the piece.
    pub(crate) fn encode<E>(
        &self,
        text: &str,
        mut encode_piece: impl FnMut(&str, &mut Vec<u32>) -> Result<(), E>,
    ) -> Result<Vec<u32>, E> {
        let mut work = self.take_work();
        let mut ids = Vec::with_capacity(text.len() / 4);
        let mut start = 0;
        let mut outcome = Ok(());
        while start < text.len() && outcome.is_ok() {
            let end = self.splitter.piece_end(&mut work.states, text, start);
            let piece = &text[start..end];
            let key = Key::new(&text.as_bytes()[start..], piece.len());
            start = end;
            match key {
                None if piece.len() > LONGEST_PIECE => {
                    outcome = parts(piece).try_for_each(|part| encode_piece(part, &mut ids));
                }
                Some(key) if work.pieces.get(&key, &mut ids) => {}
                Some(key) => {
                    let first = ids.len();
                    outcome = encode_piece(piece, &mut ids);
                    if outcome.is_ok() {
                        work.pieces.put(key, &ids[first..]);
                    }
                }
                None => outcome = encode_piece(piece, &mut ids),
            }
        }
        self.give_work(work);
        outcome.map(|()| ids)
    }

    /// The last place up to `most` bytes from the beginning of `text` at which a piece ends; none where the first piece is
    /// longer.
    pub(crate) fn last_piece_end(&self, text: &str, most: usize) -> Option<usize> {
        let mut work = self.take_work();
        let mut last = 0;
        while last < text.len() {
            let end = self.splitter.piece_end(&mut work.states, text, last);
            if end > most {
                break;
            }
            last = end;
        }
        self.give_work(work);
        (last > 0).then_some(last)
    }

    /// Calls `visit` with every piece of `text`.
    pub(crate) fn pieces<'a>(&self, text: &'a str, mut visit: impl FnMut(&'a str)) {
        let mut work = self.take_work();
        let mut start = 0;
        while start < text.len() {
            let end = self.splitter.piece_end(&mut work.states, text, start);
            visit(&text[start..end]);
            start = end;
        }
        self.give_work(work);
    }

    /// This thread's work, or the beginning of some.
    fn take_work(&self) -> Work {
        let mine = |kept: &mut Vec<(u64, Work)>| {
            let at = kept.iter().position(|(id, _)| *id == self.vocabulary)?;
            Some(kept.remove(at).1)
        };
        let taken = WORK.with(|kept| mine(&mut kept.borrow_mut()));
        taken.unwrap_or_else(|| Work {
            states: self.splitter.cache(),
            pieces: PieceCache::new(),
        })
    }

    fn give_work(&self, work: Work) {
        WORK.with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() >= KEPT {
                kept.remove(0);
            }
            kept.push((self.vocabulary, work));
        });
    }
}

/// A long piece in parts of whole characters, each of at most [`LONGEST_PIECE`] bytes.
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
    use crate::hard_texts::{BYTE_PAIRS, FILES, nasty_text};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]
        #[test]
        fn ids_are_those_of_tiktoken(text in nasty_text()) {
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
        fn ids_are_those_of_tokenizers(text in nasty_text()) {
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
    fn a_thread_keeps_little_and_more_vocabularies_than_it_keeps_do_not_mix() {
        let kinds = BYTE_PAIRS.map(|kind| Tokenizer::builtin(kind).unwrap());
        let files = FILES.iter().map(|(_, tokenizer)| tokenizer);
        let all: Vec<&Tokenizer> = kinds.iter().chain(files).collect();
        let text = "It's twelve o'clock, 1234 words";
        let first: Vec<_> = all.iter().map(|one| one.encode(text).unwrap()).collect();
        let again: Vec<_> = all.iter().map(|one| one.encode(text).unwrap()).collect();
        assert_eq!(first, again);
        assert_eq!(WORK.with(|kept| kept.borrow().len()), KEPT);
    }

    /// A matcher that restarts at every blank, or an encoder that searches all merges each time, takes minutes.
    #[test]
    fn a_million_of_anything_takes_no_time() {
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
