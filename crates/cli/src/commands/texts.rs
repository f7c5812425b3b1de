//! Reads the texts of `embed` and `classify`: lines of text, or fields of JSON lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use emberlm_checkpoint::{Embedder, EncoderModel};
use emberlm_kernels::Backend;
use emberlm_system::file_kind::FileKind;
use emberlm_tokenizer::{EncodedSequence, SequenceEncoder};
use emberlm_trainer::fit::InferenceWork;
use serde_json::Value;

use crate::error::{CliError, warn};
use crate::memory_guard::MemoryGuard;

/// A text, or a pair of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextInput {
    pub text: String,
    pub pair: Option<String>,
}

/// The fields of a JSON line.
#[derive(Clone, Copy, Debug)]
pub struct TextFields {
    pair: Option<&'static str>,
}

impl TextFields {
    /// `text`.
    pub const TEXT: Self = Self { pair: None };
    /// `text`, and optionally `text_pair`.
    pub const PAIR: Self = Self {
        pair: Some("text_pair"),
    };
}

/// Reads the texts of files, or of stdin for `-`, and hands them to `process` in batches of at most `size`. Without
/// `fields`, every line is a text.
///
/// # Errors
/// A file cannot be read, a line is not UTF-8, or it is not JSON with the fields; or an error of `process`.
pub fn in_batches(
    files: &[PathBuf],
    fields: Option<TextFields>,
    size: usize,
    mut process: impl FnMut(&[TextInput]) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut batch = Vec::new();
    for path in files {
        for (number, line) in open(path)?.lines().enumerate() {
            let at = || format!("{}, line {}", path.display(), number + 1);
            let line = line.map_err(|error| CliError::new(format!("{}: {error}", at())))?;
            batch.push(match fields {
                None => TextInput {
                    text: line,
                    pair: None,
                },
                Some(fields) => parse(&line, fields)
                    .map_err(|reason| CliError::new(format!("{}: {reason}", at())))?,
            });
            if batch.len() == size {
                process(&batch)?;
                batch.clear();
            }
        }
    }
    match batch.is_empty() {
        true => Ok(()),
        false => process(&batch),
    }
}

/// Checks that an encoder and its passes fit into memory. `what` names the work.
///
/// # Errors
/// The prediction exceeds the available memory.
pub fn check_memory<B: Backend>(
    what: &'static str,
    model: &EncoderModel,
    guard: MemoryGuard,
) -> Result<(), CliError> {
    let work = InferenceWork::encoding(model.longest_text(), Embedder::<B>::PASS_TOKENS);
    guard.check_inference(what, &[(model.config(), work)], &[])
}

/// Encodes texts, and counts those that are truncated.
#[derive(Debug)]
pub struct TextEncoder<'a> {
    sequences: &'a SequenceEncoder,
    texts: usize,
    truncated: usize,
}

impl<'a> TextEncoder<'a> {
    pub fn new(sequences: &'a SequenceEncoder) -> Self {
        Self {
            sequences,
            texts: 0,
            truncated: 0,
        }
    }

    pub fn encode(&mut self, inputs: &[TextInput]) -> Result<Vec<EncodedSequence>, CliError> {
        let texts = inputs.iter();
        let texts: Vec<(&str, Option<&str>)> = texts
            .map(|input| (input.text.as_str(), input.pair.as_deref()))
            .collect();
        let encoded = self.sequences.encode_all(&texts)?;
        self.texts += encoded.len();
        self.truncated += encoded.iter().filter(|sequence| sequence.truncated).count();
        Ok(encoded)
    }

    /// Warns about the truncated texts, if any.
    pub fn finish(self) {
        let (texts, truncated) = (self.texts, self.truncated);
        if truncated > 0 {
            let limit = self.sequences.max_tokens();
            warn(&format!(
                "{truncated} of {texts} texts were truncated to {limit} tokens"
            ));
        }
    }
}

fn open(path: &Path) -> Result<Box<dyn BufRead>, CliError> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    if let Ok(Some(kind)) = FileKind::of_file(path)
        && !kind.is_utf8()
    {
        let reason = io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it is {kind}, not text"),
        );
        return Err(CliError::io("read", path)(reason));
    }
    let file = File::open(path)
        .map_err(|error| CliError::new(format!("cannot read {}: {error}", path.display())))?;
    Ok(Box::new(BufReader::new(file)))
}

fn parse(line: &str, fields: TextFields) -> Result<TextInput, String> {
    let value: Value =
        serde_json::from_str(line).map_err(|error| format!("the line is not JSON: {error}"))?;
    let field = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let text = field("text").ok_or("the line has no field `text` with a string")?;
    Ok(TextInput {
        text,
        pair: fields.pair.and_then(field),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_lines_have_a_text_and_optionally_a_pair() {
        let line = r#"{"text": "a", "text_pair": "b"}"#;
        let pair = |fields| parse(line, fields).unwrap().pair;
        assert_eq!(pair(TextFields::PAIR).as_deref(), Some("b"));
        assert_eq!(pair(TextFields::TEXT), None);
        assert!(parse(r#"{"text": 1}"#, TextFields::TEXT).is_err());
        assert!(parse("text", TextFields::TEXT).is_err());
    }
}
