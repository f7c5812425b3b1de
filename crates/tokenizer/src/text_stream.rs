//! Converts generated tokens to displayable text: complete characters, up to a stop string.

use crate::{DecodeStream, StopStrings, Tokenizer};

/// Converts the tokens of one sequence to text as they are generated.
///
/// ```
/// use emberlm_tokenizer::{StopStrings, TextStream, Tokenizer, TokenizerKind};
///
/// let tokenizer = Tokenizer::builtin(TokenizerKind::Byte)?;
/// let mut stream = TextStream::after(&tokenizer, &[], StopStrings::new(&["\n"])?);
/// let mut text = String::new();
/// for id in tokenizer.encode("a line\nmore")? {
///     text += &stream.push(id).visible;
/// }
/// assert!(stream.is_stopped());
/// text += &stream.finish().visible;
/// assert_eq!(text, "a line");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TextStream {
    stream: DecodeStream,
    stops: StopStrings,
    stop: Option<usize>,
}

/// The text that one token adds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextDelta {
    /// The characters that the token completes, including those of stop strings.
    pub decoded: String,
    /// The text that can be displayed now. The possible beginning of a stop string is held back.
    pub visible: String,
    /// The 0-based index of the stop string that has occurred, after which no text is visible.
    pub stop: Option<usize>,
}

impl TextStream {
    /// Creates a stream for the text that follows `prompt`. The prompt matters: some tokenizers drop the
    /// leading space of a text's first token. Ids of the prompt outside the vocabulary are skipped.
    pub fn after(tokenizer: &Tokenizer, prompt: &[u32], stops: StopStrings) -> Self {
        let mut stream = tokenizer.stream();
        // A model may have more ids than its tokenizer.
        stream.skip_known(prompt);
        Self {
            stream,
            stops,
            stop: None,
        }
    }

    /// Processes the next token. An id outside the vocabulary becomes U+FFFD.
    pub fn push(&mut self, id: u32) -> TextDelta {
        let decoded = self.stream.push(id);
        self.pass(decoded.unwrap_or_else(|_| '\u{FFFD}'.to_string()))
    }

    /// Ends the text and returns the part that was held back.
    pub fn finish(mut self) -> TextDelta {
        let rest = self.stream.clone().finish();
        let mut delta = self.pass(rest);
        if self.stop.is_none() {
            delta.visible += &text(&self.stops.finish());
        }
        delta
    }

    /// Returns true once a stop string has occurred.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_some()
    }

    fn pass(&mut self, decoded: String) -> TextDelta {
        let passed = self.stops.push(decoded.as_bytes());
        self.stop = self.stop.or(passed.stopped);
        TextDelta {
            decoded,
            visible: text(&passed.bytes),
            stop: self.stop,
        }
    }
}

/// Converts released bytes to text. Decoded text and stop strings consist of complete characters, so every
/// released part does too.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenizerKind;

    /// Returns the visible part of a text that arrives byte by byte, and true if a stop string ended it.
    fn visible(text: &str, stops: &[&str]) -> (String, bool) {
        let tokenizer = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
        let stops = StopStrings::new(stops).unwrap();
        let mut stream = TextStream::after(&tokenizer, &[1, 999], stops);
        let mut all = String::new();
        for byte in text.bytes() {
            all += &stream.push(byte.into()).visible;
        }
        let stopped = stream.is_stopped();
        all += &stream.finish().visible;
        (all, stopped)
    }

    #[test]
    fn a_text_ends_before_its_stop() {
        assert_eq!(visible("aé🔥 end", &["🔥"]), ("aé".to_owned(), true));
        assert_eq!(visible("aé🔥", &["🔥!", "é "]), ("aé🔥".to_owned(), false));
        assert_eq!(
            visible("one\nUser:", &["\nUser:"]),
            ("one".to_owned(), true)
        );
        assert_eq!(
            visible("one\nUse", &["\nUser:"]),
            ("one\nUse".to_owned(), false)
        );
    }

    #[test]
    fn undecodable_tokens_become_replacement_characters() {
        let tokenizer = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
        let mut stream = TextStream::after(&tokenizer, &[], StopStrings::default());
        assert_eq!(stream.push(0xF0).visible, "");
        assert_eq!(stream.push(9999).visible, "\u{FFFD}");
        assert_eq!(stream.finish().visible, "\u{FFFD}");
    }
}
