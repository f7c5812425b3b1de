//! Decodes the tokens of a `tokenizer.json` to bytes one at a time, by the steps of its `decoder`.
//!
//! The `tokenizers` crate decodes a whole sequence at once, to text. Generation needs one token at a time, and
//! bytes, since a token may end within a character. Every step gives the same result as the crate's decoder of
//! that name, with one difference: spelled-out bytes (`<0xE2>`) remain bytes, whereas the crate emits U+FFFD
//! for each byte of a run that is not valid UTF-8 as a whole.

use serde_json::Value;

use crate::byte_level;

/// The decoder of a `tokenizer.json`.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct TokenDecoder {
    /// The transformations of each token.
    steps: Vec<Step>,
    /// The character that is stripped from the start of the text, and the maximum count.
    strip: Option<(char, usize)>,
}

/// The decoding state at a position in the text. The default is its beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position {
    /// True if a token has been decoded.
    started: bool,
    /// True if the previous token ended a word, so the next one starts with a space.
    ended_word: bool,
    /// The number of characters stripped so far, or [`usize::MAX`] when stripping is over.
    stripped: usize,
}

impl Position {
    /// The position after another token that did not end a word.
    pub(crate) fn within() -> Self {
        Self {
            started: true,
            ended_word: false,
            stripped: usize::MAX,
        }
    }
}

#[derive(Debug, PartialEq)]
enum Step {
    /// Maps characters to bytes, by GPT-2's byte alphabet.
    ByteLevel,
    /// Decodes `<0x0A>` to a byte.
    ByteFallback,
    /// Replaces every `from` by `to`.
    Replace { from: String, to: String },
    /// Replaces every `mark` by a space, or removes it in the first token.
    Metaspace { mark: char, strip_first: bool },
    /// Joins a token with this prefix to the previous word.
    WordPiece { prefix: String, cleanup: bool },
    /// A token with this suffix ends a word.
    Suffix(String),
    /// A space between tokens: the default without a decoder.
    Spaces,
    /// Strips up to `count` of this character from the start of each token.
    Strip { mark: char, count: usize },
}

impl TokenDecoder {
    /// Reads the `decoder` field of a `tokenizer.json`.
    pub(crate) fn read(decoder: &Value) -> Result<Self, String> {
        let mut this = Self::default();
        let mut joined = false;
        if decoder.is_null() {
            this.steps.push(Step::Spaces);
            return Ok(this);
        }
        this.add(decoder, &mut joined)?;
        Ok(this)
    }

    /// Adds a decoder to the chain. `joined` is true once an earlier step has joined the tokens into one text.
    fn add(&mut self, decoder: &Value, joined: &mut bool) -> Result<(), String> {
        let text = |name: &str| match decoder[name].as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(format!("`{name}` of a decoder must be a string")),
        };
        let mark = |name: &str| {
            let text = text(name)?;
            let mut characters = text.chars();
            match (characters.next(), characters.next()) {
                (Some(mark), None) => Ok(mark),
                _ => Err(format!("`{name}` of a decoder must be one character")),
            }
        };
        let count = |name: &str| {
            let count = decoder[name].as_u64().map(usize::try_from);
            let rule = || format!("`{name}` of a decoder must be a whole number");
            count.and_then(Result::ok).ok_or_else(rule)
        };
        let kind = text("type")?;
        let step = match kind.as_str() {
            "Sequence" => {
                let decoders = decoder["decoders"].as_array();
                let decoders = decoders.ok_or("`decoders` of a decoder must be a list")?;
                return decoders.iter().try_for_each(|next| self.add(next, joined));
            }
            "Fuse" => {
                *joined = true;
                return Ok(());
            }
            "Strip" => {
                let (mark, start) = (mark("content")?, count("start")?);
                if count("stop")? > 0 {
                    return Err("a decoder that strips the end is not supported".to_owned());
                }
                match (*joined, self.strip) {
                    (false, _) => Step::Strip { mark, count: start },
                    (true, None) => {
                        self.strip = Some((mark, start));
                        return Ok(());
                    }
                    (true, Some(_)) => {
                        return Err("a decoder that strips twice is not supported".to_owned());
                    }
                }
            }
            _ if *joined => {
                return Err(format!("the decoder {kind} after another is not supported"));
            }
            "ByteLevel" => {
                *joined = true;
                Step::ByteLevel
            }
            "ByteFallback" => Step::ByteFallback,
            "Replace" => match decoder["pattern"]["String"].as_str() {
                Some(from) if !from.is_empty() => Step::Replace {
                    from: from.to_owned(),
                    to: text("content")?,
                },
                _ => return Err("a decoder that replaces a pattern is not supported".to_owned()),
            },
            "Metaspace" => {
                let never = decoder["prepend_scheme"] == "never"
                    || decoder["add_prefix_space"] == Value::Bool(false);
                Step::Metaspace {
                    mark: mark("replacement")?,
                    strip_first: !never,
                }
            }
            "WordPiece" => Step::WordPiece {
                prefix: text("prefix")?,
                cleanup: decoder["cleanup"] == Value::Bool(true),
            },
            "BPEDecoder" => Step::Suffix(text("suffix")?),
            other => return Err(format!("the decoder {other} is not supported")),
        };
        self.steps.push(step);
        Ok(())
    }

    /// Returns true if tokens contain the spaces of the text. Otherwise spaces are inserted between words.
    pub(crate) fn keeps_spaces(&self) -> bool {
        self.steps.iter().all(|step| match step {
            Step::ByteLevel
            | Step::ByteFallback
            | Step::Replace { .. }
            | Step::Metaspace { .. }
            | Step::Strip { .. } => true,
            Step::WordPiece { .. } | Step::Suffix(_) | Step::Spaces => false,
        })
    }

    /// Returns true if the first token of a text decodes differently from later ones.
    pub(crate) fn depends_on_beginning(&self) -> bool {
        let strips = |step: &Step| {
            matches!(
                step,
                Step::Metaspace {
                    strip_first: true,
                    ..
                }
            )
        };
        self.strip.is_some() || self.steps.iter().any(strips)
    }

    /// Appends the bytes of `token` at `position` and advances it.
    pub(crate) fn push(&self, token: &str, position: &mut Position, out: &mut Vec<u8>) {
        let start = out.len();
        let first = !std::mem::replace(&mut position.started, true);
        let mut piece = token.to_owned();
        let mut byte = None;
        for step in &self.steps {
            match step {
                _ if byte.is_some() => break,
                Step::ByteLevel => {
                    byte_level::push_bytes(&piece, out);
                    piece.clear();
                }
                Step::ByteFallback => byte = spelled_byte(&piece),
                Step::Replace { from, to } => piece = piece.replace(from.as_str(), to),
                Step::Metaspace { mark, strip_first } => {
                    let space = if first && *strip_first { "" } else { " " };
                    piece = piece.replace(*mark, space);
                }
                Step::WordPiece { prefix, cleanup } => {
                    if !first {
                        piece = match piece.strip_prefix(prefix.as_str()) {
                            Some(rest) => rest.to_owned(),
                            None => format!(" {piece}"),
                        };
                    }
                    if *cleanup {
                        piece = clean_up_english(&piece);
                    }
                }
                Step::Suffix(suffix) => {
                    let space = if position.ended_word { " " } else { "" };
                    let ended = piece.strip_suffix(suffix.as_str());
                    position.ended_word = ended.is_some();
                    let rest = ended.unwrap_or(&piece).replace(suffix.as_str(), " ");
                    piece = format!("{space}{rest}");
                }
                Step::Spaces if first => {}
                Step::Spaces => piece.insert(0, ' '),
                Step::Strip { mark, count } => {
                    let marks = piece.chars().take(*count).take_while(|c| c == mark);
                    let taken: usize = marks.map(char::len_utf8).sum();
                    piece.drain(..taken);
                }
            }
        }
        match byte {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(piece.as_bytes()),
        }
        self.strip_text(start, position, out);
    }

    /// Strips the configured characters from the text's beginning, which is at `start` of `out` while nothing
    /// else has been decoded.
    fn strip_text(&self, start: usize, position: &mut Position, out: &mut Vec<u8>) {
        let Some((mark, count)) = self.strip else {
            return;
        };
        let mut buffer = [0; 4];
        let mark = mark.encode_utf8(&mut buffer).as_bytes();
        while position.stripped < count && out.len() > start {
            match out[start..].starts_with(mark) {
                true => {
                    out.drain(start..start + mark.len());
                    position.stripped += 1;
                }
                false => position.stripped = usize::MAX,
            }
        }
    }
}

/// Parses a token such as `<0x0A>` to its byte.
fn spelled_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2)
        .then(|| u8::from_str_radix(digits, 16).ok())
        .flatten()
}

/// Removes spaces that were inserted into English text: the `cleanup` option of the WordPiece decoder.
fn clean_up_english(piece: &str) -> String {
    const REPLACEMENTS: [(&str, &str); 11] = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    let tidied = |piece: String, (from, to)| piece.replace(from, to);
    REPLACEMENTS.into_iter().fold(piece.to_owned(), tidied)
}
