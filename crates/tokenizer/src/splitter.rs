//! A text split into pieces by one of the known patterns, in one pass.
//!
//! tiktoken and `tokenizers` run the patterns on a backtracking matcher only because of `\s+(?!\S)`: blanks up to
//! a character that is none, the last blank left for what follows. Without it a pattern is a regular expression, which
//! an automaton without look-around matches, a byte at a time, however long the text is. So the patterns, whose last two
//! alternatives are `\s+(?!\S)` and `\s+` or `\s`, are matched as two expressions: the alternatives before, and `\s+`.
//! Where it is the second that matches, the last blank is given back if there is another and the text continues.

use regex_automata::hybrid::BuildError;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::{Anchored, Input, PatternID};

/// The end of each pattern of `patterns`: the alternatives that need a look ahead.
const TAILS: [&str; 2] = [r"|\s+(?!\S)|\s+", r"|\s+(?!\S)|\s"];

/// The most memory that the automaton's states take, per thread: beyond, they are recomputed.
const CACHE_BYTES: usize = 2 << 20;

/// One of the known patterns.
#[derive(Debug)]
pub(crate) struct Splitter {
    automaton: DFA,
}

impl Splitter {
    /// The splitter of one of [`crate::patterns::ALL`]; none where the pattern has another form than those.
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

    /// The state that a thread keeps to split texts.
    pub(crate) fn cache(&self) -> Cache {
        self.automaton.create_cache()
    }

    /// The end of the piece that begins at `start` of `text`; `start` is below the text's length, between two characters.
    pub(crate) fn piece_end(&self, cache: &mut Cache, text: &str, start: usize) -> usize {
        if let Some(end) = plain_word_end(text.as_bytes(), start) {
            return end;
        }
        let input = Input::new(text).range(start..).anchored(Anchored::Yes);
        let found = self.automaton.try_search_fwd(cache, &input);
        // Each pattern matches any character, and the automaton has no reason to give up: every failure is
        // ruled out, and then every character is a piece.
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

/// The end of a word in lower case, perhaps with a capital first and a blank before it, if what follows is in ASCII and
/// neither a letter nor an apostrophe: there all patterns end a piece that begins with the word. Of English most pieces
/// are such words, and this is several times faster than the automaton.
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
