//! Tokens of a `tokenizer.json` back to bytes, one at a time: what its `decoder` says, as a chain of steps.
//!
//! The `tokenizers` crate decodes a whole sequence at once, to text; generation needs token after token, and bytes, since
//! a token may end within a character. Every step here gives what the crate's decoder of that name gives, with one
//! difference: bytes that are spelled out (`<0xE2>`) stay the bytes that they are, where the crate puts U+FFFD for each
//! byte of a run that is not UTF-8 as a whole.

use serde_json::Value;

use crate::byte_level;

/// A `tokenizer.json`'s decoder.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct PieceDecoder {
    /// The replacements within each token.
    steps: Vec<Step>,
    /// The prefix that is stripped from the text: up to so many of this character.
    strip: Option<(char, usize)>,
}

/// The place of a sequence of tokens in the text; the default is its beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position {
    /// True if there was a token before.
    started: bool,
    /// True if the token before ended a word, so that a blank comes before the next.
    owes_blank: bool,
    /// The number of characters that have been taken from the beginning; [`usize::MAX`] once that is over.
    stripped: usize,
}

impl Position {
    /// After other tokens that owe nothing.
    pub(crate) fn within() -> Self {
        Self {
            started: true,
            owes_blank: false,
            stripped: usize::MAX,
        }
    }
}

#[derive(Debug, PartialEq)]
enum Step {
    /// Characters stand for bytes, as in GPT-2's alphabet.
    ByteLevel,
    /// `<0x0A>` is a byte.
    ByteFallback,
    /// Every `from` becomes `to`.
    Replace { from: String, to: String },
    /// Every `mark` becomes a blank, or in the first token nothing.
    Metaspace { mark: char, strip_first: bool },
    /// A token that begins with `prefix` continues the previous word.
    WordPiece { prefix: String, cleanup: bool },
    /// A token ends a word where it ends with this.
    Suffix(String),
    /// A blank between any two tokens: the default without a decoder.
    Blanks,
    /// Up to so many of this character are taken from the beginning of each token.
    Strip { mark: char, count: usize },
}

impl PieceDecoder {
    /// Reads the `decoder` field of a `tokenizer.json`.
    pub(crate) fn read(decoder: &Value) -> Result<Self, String> {
        let mut this = Self::default();
        let mut joined = false;
        if decoder.is_null() {
            this.steps.push(Step::Blanks);
            return Ok(this);
        }
        this.add(decoder, &mut joined)?;
        Ok(this)
    }

    /// Adds a decoder to the chain; `joined` is whether what came before has made one text of all tokens.
    fn add(&mut self, decoder: &Value, joined: &mut bool) -> Result<(), String> {
        let text = |name: &str| match decoder[name].as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(format!("`{name}` of a decoder must be a text")),
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

    /// Returns true if the text's own blanks are among the tokens: elsewhere they are made up where words meet.
    pub(crate) fn keeps_blanks(&self) -> bool {
        self.steps.iter().all(|step| match step {
            Step::ByteLevel
            | Step::ByteFallback
            | Step::Replace { .. }
            | Step::Metaspace { .. }
            | Step::Strip { .. } => true,
            Step::WordPiece { .. } | Step::Suffix(_) | Step::Blanks => false,
        })
    }

    /// Returns true if a text's first token loses what it has elsewhere.
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

    /// Appends what `token` stands for at `position`, and moves the position on.
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
                    let blank = if first && *strip_first { "" } else { " " };
                    piece = piece.replace(*mark, blank);
                }
                Step::WordPiece { prefix, cleanup } => {
                    if !first {
                        piece = match piece.strip_prefix(prefix.as_str()) {
                            Some(rest) => rest.to_owned(),
                            None => format!(" {piece}"),
                        };
                    }
                    if *cleanup {
                        piece = tidy_english(&piece);
                    }
                }
                Step::Suffix(suffix) => {
                    let blank = if position.owes_blank { " " } else { "" };
                    let ended = piece.strip_suffix(suffix.as_str());
                    position.owes_blank = ended.is_some();
                    let rest = ended.unwrap_or(&piece).replace(suffix.as_str(), " ");
                    piece = format!("{blank}{rest}");
                }
                Step::Blanks if first => {}
                Step::Blanks => piece.insert(0, ' '),
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

    /// Takes from the beginning of the text, which is at `start` of `out` as long as nothing else has come, what is to
    /// be taken.
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

/// The byte that a token such as `<0x0A>` spells.
fn spelled_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2)
        .then(|| u8::from_str_radix(digits, 16).ok())
        .flatten()
}

/// Takes back some blanks that splitting English into words has made: the `cleanup` of the WordPiece decoder.
fn tidy_english(piece: &str) -> String {
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
