//! Encodes texts and pairs of texts for an encoder: with the special tokens of the `tokenizer.json`'s template, and
//! truncated to a length.

use rayon::prelude::*;
use serde_json::Value;

use crate::tokenizer::Vocab;
use crate::{Tokenizer, TokenizerError};

/// Encodes texts for an encoder.
///
/// ```
/// use emberlm_tokenizer::{SequenceEncoder, Tokenizer, TokenizerKind};
///
/// let tokenizer = Tokenizer::builtin(TokenizerKind::Byte)?;
/// let sequence = SequenceEncoder::new(&tokenizer, 3).encode("text")?;
/// assert_eq!(sequence.ids, b"tex".map(u32::from));
/// assert!(sequence.truncated);
/// # Ok::<(), emberlm_tokenizer::TokenizerError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SequenceEncoder {
    tokenizer: Tokenizer,
    single: Vec<Element>,
    pair: Vec<Element>,
    max_tokens: usize,
}

/// The tokens of a text or a pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedSequence {
    /// Token ids, special tokens included.
    pub ids: Vec<u32>,
    /// The segment of each token: 0, or 1 for the second text of a pair.
    pub segments: Vec<u32>,
    /// True if tokens were removed to fit the length.
    pub truncated: bool,
}

impl EncodedSequence {
    /// A sequence in one segment.
    pub fn of_ids(ids: Vec<u32>) -> Self {
        Self {
            segments: vec![0; ids.len()],
            truncated: false,
            ids,
        }
    }
}

/// One element of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Element {
    /// Special tokens.
    Special { ids: Vec<u32>, segment: u32 },
    /// The first text of a pair (0), or the second (1).
    Text { number: usize, segment: u32 },
}

impl Element {
    /// A text in the segment of its number.
    const fn text(number: usize) -> Self {
        Self::Text {
            number,
            segment: number as u32,
        }
    }
}

impl SequenceEncoder {
    /// An encoder that truncates to `max_tokens` tokens, special tokens included. Without a template in its file, a
    /// tokenizer adds no special tokens.
    pub fn new(tokenizer: &Tokenizer, max_tokens: usize) -> Self {
        let template = match tokenizer.vocab() {
            Vocab::File(file) => template(file.json()),
            Vocab::Bpe(_) | Vocab::Char(_) | Vocab::Byte => None,
        };
        let [single, pair] = template.unwrap_or_else(|| {
            [
                vec![Element::text(0)],
                vec![Element::text(0), Element::text(1)],
            ]
        });
        Self {
            tokenizer: tokenizer.clone(),
            single,
            pair,
            max_tokens,
        }
    }

    /// The same encoder with another longest sequence.
    #[must_use]
    pub fn with_max_tokens(&self, max_tokens: usize) -> Self {
        Self {
            max_tokens,
            ..self.clone()
        }
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The longest sequence, in tokens.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// The special tokens before and after a single text.
    pub fn frame(&self) -> [Vec<u32>; 2] {
        let mut frame = [Vec::new(), Vec::new()];
        let mut side = 0;
        for element in &self.single {
            match element {
                Element::Special { ids, .. } => frame[side].extend(ids),
                Element::Text { .. } => side = 1,
            }
        }
        frame
    }

    /// Encodes a text.
    ///
    /// # Errors
    /// See [`Tokenizer::encode`].
    pub fn encode(&self, text: &str) -> Result<EncodedSequence, TokenizerError> {
        Ok(self.assembled(&self.single, vec![self.tokenizer.encode(text)?]))
    }

    /// Encodes a pair of texts. The longer one is truncated first.
    ///
    /// # Errors
    /// See [`Tokenizer::encode`].
    pub fn encode_pair(
        &self,
        first: &str,
        second: &str,
    ) -> Result<EncodedSequence, TokenizerError> {
        let texts = vec![
            self.tokenizer.encode(first)?,
            self.tokenizer.encode(second)?,
        ];
        Ok(self.assembled(&self.pair, texts))
    }

    /// Encodes texts and pairs of texts in parallel.
    ///
    /// # Errors
    /// See [`Tokenizer::encode`].
    pub fn encode_all<T: AsRef<str> + Sync>(
        &self,
        texts: &[(T, Option<T>)],
    ) -> Result<Vec<EncodedSequence>, TokenizerError> {
        let encode = |(first, second): &(T, Option<T>)| match second {
            Some(second) => self.encode_pair(first.as_ref(), second.as_ref()),
            None => self.encode(first.as_ref()),
        };
        texts.par_iter().map(encode).collect()
    }

    fn assembled(&self, template: &[Element], mut texts: Vec<Vec<u32>>) -> EncodedSequence {
        let special = template.iter().map(|element| match element {
            Element::Special { ids, .. } => ids.len(),
            Element::Text { .. } => 0,
        });
        let room = self.max_tokens.saturating_sub(special.sum());
        let mut sequence = EncodedSequence {
            truncated: truncate(&mut texts, room),
            ..EncodedSequence::default()
        };
        for element in template {
            let (ids, segment) = match element {
                Element::Special { ids, segment } => (ids.as_slice(), *segment),
                Element::Text { number, segment } => {
                    (texts.get(*number).map_or(&[][..], Vec::as_slice), *segment)
                }
            };
            sequence.ids.extend(ids);
            sequence.segments.resize(sequence.ids.len(), segment);
        }
        sequence
    }
}

/// Removes the last tokens of the longest text, and of the last one among equals, until all fit into `room`. Returns
/// true if it removed any.
fn truncate(texts: &mut [Vec<u32>], room: usize) -> bool {
    let total: usize = texts.iter().map(Vec::len).sum();
    let mut excess = total.saturating_sub(room);
    if excess == 0 {
        return false;
    }
    while excess > 0 {
        let Some(longest) = texts.iter_mut().max_by_key(|text| text.len()) else {
            break;
        };
        longest.pop();
        excess -= 1;
    }
    true
}

/// Reads the templates of a text and of a pair from a `tokenizer.json`. `None` if it has none.
fn template(json: &[u8]) -> Option<[Vec<Element>; 2]> {
    let value: Value = serde_json::from_slice(json).ok()?;
    let processor = &value["post_processor"];
    let parts = match processor["processors"].as_array() {
        Some(parts) => parts.iter().collect(),
        None => vec![processor],
    };
    parts
        .into_iter()
        .find_map(|part| match part["type"].as_str()? {
            "TemplateProcessing" => Some([elements(part, "single")?, elements(part, "pair")?]),
            kind @ ("BertProcessing" | "RobertaProcessing") => {
                let id = |name: &str| u32::try_from(part[name][1].as_u64()?).ok();
                Some(frame(id("cls")?, id("sep")?, kind == "RobertaProcessing"))
            }
            _ => None,
        })
}

/// The elements of one of a template's two lists.
fn elements(template: &Value, list: &str) -> Option<Vec<Element>> {
    let element = |piece: &Value| {
        let segment = |of: &Value| of["type_id"].as_u64().map_or(0, |id| id as u32);
        if let Some(text) = piece.get("Sequence") {
            return Some(Element::Text {
                number: usize::from(text["id"] == "B"),
                segment: segment(text),
            });
        }
        let special = piece.get("SpecialToken")?;
        let ids = template["special_tokens"][special["id"].as_str()?]["ids"].as_array()?;
        let ids = ids.iter().map(|id| u32::try_from(id.as_u64()?).ok());
        Some(Element::Special {
            ids: ids.collect::<Option<_>>()?,
            segment: segment(special),
        })
    };
    template[list].as_array()?.iter().map(element).collect()
}

/// BERT's `[CLS] A [SEP] B [SEP]`, or RoBERTa's `<s> A </s></s> B </s>` in one segment.
fn frame(cls: u32, sep: u32, roberta: bool) -> [Vec<Element>; 2] {
    let special = |ids: Vec<u32>, segment: u32| Element::Special { ids, segment };
    let begin = || vec![special(vec![cls], 0), Element::text(0)];
    let mut single = begin();
    single.push(special(vec![sep], 0));
    let mut pair = begin();
    match roberta {
        true => pair.extend([
            special(vec![sep, sep], 0),
            Element::Text {
                number: 1,
                segment: 0,
            },
            special(vec![sep], 0),
        ]),
        false => pair.extend([
            special(vec![sep], 0),
            Element::text(1),
            special(vec![sep], 1),
        ]),
    }
    [single, pair]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_text_is_truncated_first() {
        let mut texts = vec![vec![1; 5], vec![2; 3]];
        assert!(truncate(&mut texts, 5));
        assert_eq!([texts[0].len(), texts[1].len()], [3, 2]);
        assert!(!truncate(&mut texts, 5));
        assert!(truncate(&mut texts, 0));
        assert!(texts.iter().all(Vec::is_empty));
    }

    #[test]
    fn templates_of_each_processor_are_read() {
        let bert = template(br#"{"post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 102], "cls": ["[CLS]", 101]}}"#);
        let template_processing = template(
            br#"{"post_processor": {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                           {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
                "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                         {"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
                         {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
                "special_tokens": {"[CLS]": {"ids": [101]}, "[SEP]": {"ids": [102]}}}}"#,
        );
        assert!(bert.is_some());
        assert_eq!(bert, template_processing);
        assert_eq!(
            template(br#"{"post_processor": {"type": "ByteLevel"}}"#),
            None
        );
        assert_eq!(template(b"{}"), None);
    }
}
