//! Splits a text into pieces by one of the known patterns, in linear time.
//!
//! tiktoken and `tokenizers` run the patterns on a backtracking matcher only because of `\s+(?!\S)`, which
//! matches white space up to, but not including, the last character before a word. Everything else is a regular
//! expression without look-around, which a lazy DFA matches byte by byte regardless of the length of the text.
//! All patterns end in the alternatives `\s+(?!\S)` and `\s+` or `\s`. They are therefore compiled as two
//! expressions: the preceding alternatives, and `\s+`. If the second one matches more than one character and
//! the text continues, the last character is given back.

use regex_automata::hybrid::BuildError;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::{Anchored, Input, PatternID};

/// The tail of each pattern in `patterns`: the alternatives that need look-ahead.
const TAILS: [&str; 2] = [r"|\s+(?!\S)|\s+", r"|\s+(?!\S)|\s"];

/// Memory limit of the DFA's state cache, per thread. Evicted states are recomputed.
const CACHE_BYTES: usize = 2 << 20;

/// The compiled form of a known pattern.
#[derive(Debug)]
pub(crate) struct Splitter {
    automaton: DFA,
}

impl Splitter {
    /// Compiles one of [`crate::patterns::ALL`]. Returns `None` if the pattern does not end like those.
    pub(crate) fn new(pattern: &str) -> Option<Self> {
        let head = TAILS.iter().find_map(|tail| pattern.strip_suffix(tail))?;
        Some(Self {
            automaton: Self::automaton(head).ok()?,
        })
    }

    fn automaton(head: &str) -> Result<DFA, Box<BuildError>> {
        let config = DFA::config()
            .cache_capacity(CACHE_BYTES)
            .skip_cache_capacity_check(true);
        let mut builder = DFA::builder();
        builder.configure(config);
        builder.build_many(&[head, r"\s+"]).map_err(Box::new)
    }

    /// Creates the DFA state cache of a thread.
    pub(crate) fn cache(&self) -> Cache {
        self.automaton.create_cache()
    }

    /// Returns the end of the piece that begins at `start`, which must be a character boundary before the end
    /// of `text`.
    pub(crate) fn piece_end(&self, cache: &mut Cache, text: &str, start: usize) -> usize {
        if let Some(end) = plain_word_end(text.as_bytes(), start) {
            return end;
        }
        let input = Input::new(text).range(start..).anchored(Anchored::Yes);
        let found = self.automaton.try_search_fwd(cache, &input);
        // Every pattern matches at any character and the DFA is not configured to give up, so this cannot fail.
        // The fallback makes every character a piece.
        let Ok(Some(found)) = found else {
            return start + first_len(&text[start..]);
        };
        let end = found.offset();
        if found.pattern() == PatternID::ZERO || end == text.len() {
            return end;
        }
        let last = text[start..end].char_indices().next_back();
        match last {
            Some((at, _)) if at > 0 => start + at,
            _ => end,
        }
    }
}

/// A fast path for lowercase words, optionally with an initial capital and a preceding space. If an ASCII
/// character other than a letter or an apostrophe follows, every pattern ends the piece there. Most pieces of
/// English text match, and this is several times faster than the DFA.
fn plain_word_end(text: &[u8], start: usize) -> Option<usize> {
    let after = |at: usize, is: fn(&u8) -> bool| at + usize::from(text.get(at).is_some_and(is));
    let blank = after(start, |byte| *byte == b' ');
    let first = after(blank, u8::is_ascii_uppercase);
    let rest = text.get(first..)?;
    let len = rest.iter().position(|byte| !byte.is_ascii_lowercase())?;
    let next = rest[len];
    let ends = next.is_ascii() && !next.is_ascii_alphabetic() && next != b'\'';
    (len > 0 && ends).then_some(first + len)
}

fn first_len(text: &str) -> usize {
    text.chars().next().map_or(1, char::len_utf8)
}
