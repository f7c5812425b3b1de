//! Tokens as text that may be shown: whole characters, up to a stop string.

use emberlm_generate::StopStrings;
use emberlm_tokenizer::{DecodeStream, Tokenizer};

/// Turns one sequence's tokens into text, one after another.
#[derive(Clone, Debug)]
pub struct Readable {
    stream: DecodeStream,
    stops: StopStrings,
    stopped: bool,
}

/// What a token adds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// What became readable by it, stop strings or not.
    pub read: String,
    /// What may be shown now: what may begin a stop string is held back.
    pub shown: String,
    /// Whether a stop string has come: nothing is shown any more.
    pub stopped: bool,
}

impl Readable {
    /// The text goes on from the prompt's: some tokenizers drop the blank of a text's first token.
    pub fn after(tokenizer: &Tokenizer, prompt: &[u32], stops: StopStrings) -> Self {
        let mut stream = tokenizer.stream();
        // A model may have more ids than its tokenizer.
        let known = |id: &u32| tokenizer.decode_bytes(&[*id]).is_ok();
        let prompt: Vec<u32> = prompt.iter().copied().filter(known).collect();
        // All of them are known.
        let _ = stream.skip(&prompt);
        Self {
            stream,
            stops,
            stopped: false,
        }
    }

    /// Takes the next token. One that the tokenizer does not know stands for U+FFFD.
    pub fn push(&mut self, id: u32) -> Piece {
        let read = self.stream.push(id);
        self.pass(read.unwrap_or_else(|_| '\u{FFFD}'.to_string()))
    }

    /// Ends the text: what was held back.
    pub fn finish(mut self) -> Piece {
        let rest = self.stream.clone().finish();
        let mut piece = self.pass(rest);
        if !self.stopped {
            piece.shown += &text(&self.stops.finish());
        }
        piece
    }

    /// Whether a stop string has come.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    fn pass(&mut self, read: String) -> Piece {
        let passed = self.stops.push(read.as_bytes());
        self.stopped |= passed.stopped.is_some();
        Piece {
            read,
            shown: text(&passed.bytes),
            stopped: self.stopped,
        }
    }
}

/// What is read and stop strings are whole characters, and so is what of them is held back and what is not.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use emberlm_tokenizer::TokenizerKind;

    use super::*;

    /// What is shown of a text that comes byte by byte, and whether it was stopped.
    fn shown(came: &str, stops: &[&str]) -> (String, bool) {
        let tokenizer = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
        let stops = StopStrings::new(stops).unwrap();
        let mut readable = Readable::after(&tokenizer, &[1, 999], stops);
        let mut all = String::new();
        for byte in came.bytes() {
            all += &readable.push(byte.into()).shown;
        }
        let stopped = readable.is_stopped();
        all += &readable.finish().shown;
        (all, stopped)
    }

    #[test]
    fn a_text_ends_before_its_stop() {
        assert_eq!(shown("aé🔥 end", &["🔥"]), ("aé".to_owned(), true));
        assert_eq!(shown("aé🔥", &["🔥!", "é "]), ("aé🔥".to_owned(), false));
        assert_eq!(shown("one\nUser:", &["\nUser:"]), ("one".to_owned(), true));
        assert_eq!(
            shown("one\nUse", &["\nUser:"]),
            ("one\nUse".to_owned(), false)
        );
    }

    #[test]
    fn what_is_no_text_is_said_to_be_none() {
        let tokenizer = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
        let mut readable = Readable::after(&tokenizer, &[], StopStrings::default());
        assert_eq!(readable.push(0xF0).shown, "");
        assert_eq!(readable.push(9999).shown, "\u{FFFD}");
        assert_eq!(readable.finish().shown, "\u{FFFD}");
    }
}
