//! tiktoken's rank files. Each line has a token in base64, a space and the token's rank, which is its id.
//!
//! A rank file specifies neither the pattern that splits a text into pieces nor the special tokens. Both are
//! known if the ranks are those of a built-in vocabulary. Otherwise the caller must supply them.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::bpe::Bpe;
use crate::tokenizer::Vocab;
use crate::{Pattern, Tokenizer, TokenizerError, TokenizerKind, export};

/// The highest accepted rank. No vocabulary has larger ids, and tables indexed by id would take too much
/// memory.
const MAX_RANK: u32 = 1 << 22;

/// The tokens of a rank file.
#[derive(Debug)]
pub struct RankFile {
    /// Ids and bytes, sorted by id.
    tokens: Vec<(u32, Vec<u8>)>,
}

impl RankFile {
    /// Returns true if the first line of `bytes` is a token and a rank.
    pub fn is_one(bytes: &[u8]) -> bool {
        let line = bytes.split(|byte| *byte == b'\n').next();
        line.is_some_and(|line| read_line(line.trim_ascii_end()).is_ok())
    }

    /// Parses a rank file.
    ///
    /// # Errors
    /// [`TokenizerError::RankFile`] with the line, if a line is not a token and a rank, if a token or rank is
    /// repeated, or if a single byte is not a token: some texts could then not be encoded.
    pub fn read(bytes: &[u8]) -> Result<Self, TokenizerError> {
        let mut tokens = Vec::new();
        let mut lines_of: HashMap<Vec<u8>, usize> = HashMap::new();
        for (line, number) in bytes.split(|byte| *byte == b'\n').zip(1..) {
            let line = line.trim_ascii_end();
            if line.is_empty() {
                continue;
            }
            let line_error = |reason: String| TokenizerError::RankFile {
                line: number,
                reason,
            };
            let (token, rank) = read_line(line).map_err(|rule| line_error(rule.to_owned()))?;
            if let Some(first) = lines_of.insert(token.clone(), number) {
                return Err(line_error(format!("the token was on line {first} already")));
            }
            tokens.push((rank, token));
        }
        tokens.sort();
        let file_error = |reason: String| TokenizerError::RankFile { line: 0, reason };
        if let Some(twice) = tokens.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(file_error(format!("rank {} is repeated", twice[0].0)));
        }
        let missing = (0..=u8::MAX).find(|byte| !lines_of.contains_key([*byte].as_slice()));
        if let Some(byte) = missing {
            return Err(file_error(format!(
                "no token is the single byte {byte:#04X}"
            )));
        }
        Ok(Self { tokens })
    }

    /// Returns the built-in tokenizer with the same ranks, if there is one.
    pub fn builtin(&self) -> Option<Tokenizer> {
        let same = |kind: &TokenizerKind| {
            let bpe = Bpe::new(*kind)?;
            let theirs = bpe.tokens().map(|(id, bytes)| (id, bytes.to_vec()));
            self.tokens.iter().cloned().eq(theirs).then_some(bpe)
        };
        // Avoids loading vocabularies with a different number of tokens.
        let candidates = TokenizerKind::NAMED
            .into_iter()
            .filter(|kind| Bpe::plain_tokens(*kind) == Some(self.tokens.len()));
        let found = candidates.filter_map(|kind| same(&kind)).next()?;
        Some(Tokenizer::new(Vocab::Bpe(found)))
    }

    /// Creates a tokenizer from the ranks, a pattern that splits texts into pieces, and `special` tokens.
    ///
    /// # Errors
    /// [`TokenizerError::RankFile`] if a special token's id is already used or its name is repeated.
    pub fn tokenizer(
        &self,
        pattern: Pattern,
        special: &[(String, u32)],
    ) -> Result<Tokenizer, TokenizerError> {
        let file_error = |reason: String| TokenizerError::RankFile { line: 0, reason };
        for (at, (name, id)) in special.iter().enumerate() {
            let taken = self.tokens.binary_search_by_key(id, |(id, _)| *id).is_ok();
            if taken || special[..at].iter().any(|(_, other)| other == id) {
                return Err(file_error(format!(
                    "id {id} of the special token {name} is another token's"
                )));
            }
            if special[..at].iter().any(|(other, _)| other == name) {
                return Err(file_error(format!("the special token {name} is repeated")));
            }
        }
        let tokens: Vec<_> = self
            .tokens
            .iter()
            .map(|(id, bytes)| (*id, bytes.as_slice()))
            .collect();
        Tokenizer::from_json(export::byte_pairs_json(
            pattern.expression(),
            &tokens,
            special,
        ))
    }
}

/// Parses a token and its rank.
fn read_line(line: &[u8]) -> Result<(Vec<u8>, u32), &'static str> {
    const FORM: &str = "must be a token in base64, a space and a rank";
    let line = std::str::from_utf8(line).map_err(|_| FORM)?;
    let (token, rank) = line.split_once(' ').ok_or(FORM)?;
    let token = STANDARD
        .decode(token)
        .map_err(|_| "the token is not base64")?;
    if token.is_empty() {
        return Err("the token is empty");
    }
    match rank.parse() {
        Ok(rank) if rank <= MAX_RANK => Ok((token, rank)),
        Ok(_) => Err("the rank is above 4,194,304"),
        Err(_) => Err("the rank is not a whole number"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(token: &[u8], rank: u32) -> String {
        format!("{} {rank}\n", STANDARD.encode(token))
    }

    fn bytes_and(more: &[&str]) -> String {
        let bytes = (0..=u8::MAX).map(|byte| line(&[byte], u32::from(byte)));
        let more = more
            .iter()
            .zip(256..)
            .map(|(token, rank)| line(token.as_bytes(), rank));
        bytes.chain(more).collect()
    }

    fn refused(file: &str) -> String {
        RankFile::read(file.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn ranks_of_built_in_vocabularies_are_recognized() {
        for kind in crate::test_texts::BYTE_PAIRS {
            let bpe = Bpe::new(kind).unwrap();
            let file: String = bpe.tokens().map(|(id, bytes)| line(bytes, id)).collect();
            assert!(RankFile::is_one(file.as_bytes()));
            let found = RankFile::read(file.as_bytes()).unwrap().builtin().unwrap();
            assert_eq!(found.kind(), kind);
        }
    }

    /// Expected ids worked out by hand: the lowest rank is merged first, and merges do not cross pieces.
    #[test]
    fn custom_ranks_and_a_pattern_make_a_tokenizer() {
        let file = RankFile::read(bytes_and(&["ab", "bc", "abc", " a", "11"]).as_bytes()).unwrap();
        assert!(file.builtin().is_none());
        let special = [("<|endoftext|>".to_owned(), 300)];
        let tokenizer = file.tokenizer(Pattern::Gpt2, &special).unwrap();
        assert_eq!(tokenizer.encode("abc ab").unwrap(), [258, 32, 256]);
        assert_eq!(
            tokenizer.encode("xabcb1111").unwrap(),
            [120, 258, 98, 260, 260]
        );
        assert_eq!(
            (tokenizer.vocab_size(), tokenizer.end_of_text()),
            (301, Some(300))
        );
        let single = file.tokenizer(Pattern::Qwen2, &special).unwrap();
        assert_eq!(single.encode("111").unwrap(), [49, 49, 49]);
        let text = "naïve 漢字 🔥\r\n";
        assert_eq!(single.decode(&single.encode(text).unwrap()).unwrap(), text);
    }

    #[test]
    fn damaged_files_are_rejected_with_the_line() {
        assert!(!RankFile::is_one(b"{\"version\": 1}"));
        assert!(!RankFile::is_one(b"\x0a\x0e\x0a\x05<unk>"));
        assert_eq!(
            refused("YQ== 0\nYQ=\n"),
            "not a usable rank file: line 2: must be a token in base64, a space and a rank"
        );
        assert!(refused("Y@== 0\n").ends_with("line 1: the token is not base64"));
        assert!(refused("YQ== x\n").ends_with("line 1: the rank is not a whole number"));
        assert!(refused("YQ== 4294967295\n").ends_with("line 1: the rank is above 4,194,304"));
        assert!(
            refused("YQ== 0\nYg== 1\nYQ== 2\n")
                .ends_with("line 3: the token was on line 1 already")
        );
        assert!(refused("YQ== 0\nYg== 0\n").ends_with("rank file: rank 0 is repeated"));
        assert!(refused("YQ== 0\n").ends_with("no token is the single byte 0x00"));
        assert!(refused("").ends_with("no token is the single byte 0x00"));
    }

    #[test]
    fn special_tokens_must_have_unused_ids_and_names() {
        let file = RankFile::read(bytes_and(&[]).as_bytes()).unwrap();
        let refused = |special: &[(&str, u32)]| {
            let special: Vec<_> = special
                .iter()
                .map(|(name, id)| ((*name).to_owned(), *id))
                .collect();
            file.tokenizer(Pattern::Gpt2, &special)
                .unwrap_err()
                .to_string()
        };
        assert!(
            refused(&[("<a>", 255)])
                .ends_with("id 255 of the special token <a> is another token's")
        );
        assert!(refused(&[("<a>", 256), ("<b>", 256)]).contains("id 256 of the special token <b>"));
        assert!(
            refused(&[("<a>", 256), ("<a>", 257)]).ends_with("the special token <a> is repeated")
        );
    }
}
