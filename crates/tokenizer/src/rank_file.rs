//! tiktoken's files of ranks: on each line a token in base64, a blank and its rank, which is its id.
//!
//! Such a file says neither how a text is split into pieces nor which special tokens there are. Both are known where the
//! ranks are a built-in vocabulary's; elsewhere somebody has to say.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::bpe::Bpe;
use crate::tokenizer::Vocab;
use crate::{Pattern, Tokenizer, TokenizerError, TokenizerKind, export};

/// The highest rank that is taken: ids beyond are no vocabulary's, and would need memory by the number.
const MAX_RANK: u32 = 1 << 22;

/// The tokens of a rank file.
#[derive(Debug)]
pub struct RankFile {
    /// Ids and bytes, by id.
    tokens: Vec<(u32, Vec<u8>)>,
}

impl RankFile {
    /// Returns true if these bytes look like a rank file: what their first line holds.
    pub fn is_one(bytes: &[u8]) -> bool {
        let line = bytes.split(|byte| *byte == b'\n').next();
        line.is_some_and(|line| read_line(line.trim_ascii_end()).is_ok())
    }

    /// Reads a rank file's bytes.
    ///
    /// # Errors
    /// [`TokenizerError::RankFile`], which names the line, where one is no token and rank, where a token or a rank comes
    /// twice, or where a byte is no token: then there are texts that no ids stand for.
    pub fn read(bytes: &[u8]) -> Result<Self, TokenizerError> {
        let mut tokens = Vec::new();
        let mut lines_of: HashMap<Vec<u8>, usize> = HashMap::new();
        for (line, number) in bytes.split(|byte| *byte == b'\n').zip(1..) {
            let line = line.trim_ascii_end();
            if line.is_empty() {
                continue;
            }
            let at_fault = |reason: String| TokenizerError::RankFile {
                line: number,
                reason,
            };
            let (token, rank) = read_line(line).map_err(|rule| at_fault(rule.to_owned()))?;
            if let Some(first) = lines_of.insert(token.clone(), number) {
                return Err(at_fault(format!("the token was on line {first} already")));
            }
            tokens.push((rank, token));
        }
        tokens.sort();
        let whole = |reason: String| TokenizerError::RankFile { line: 0, reason };
        if let Some(twice) = tokens.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(whole(format!("rank {} comes twice", twice[0].0)));
        }
        let missing = (0..=u8::MAX).find(|byte| !lines_of.contains_key([*byte].as_slice()));
        if let Some(byte) = missing {
            return Err(whole(format!("no token is the single byte {byte:#04X}")));
        }
        Ok(Self { tokens })
    }

    /// The built-in tokenizer whose ranks these are.
    pub fn builtin(&self) -> Option<Tokenizer> {
        let same = |kind: &TokenizerKind| {
            let bpe = Bpe::new(*kind)?;
            let theirs = bpe.tokens().map(|(id, bytes)| (id, bytes.to_vec()));
            self.tokens.iter().cloned().eq(theirs).then_some(bpe)
        };
        // What has another number of tokens need not be loaded.
        let likely = TokenizerKind::NAMED
            .into_iter()
            .filter(|kind| Bpe::plain_tokens(*kind) == Some(self.tokens.len()));
        let found = likely.filter_map(|kind| same(&kind)).next()?;
        Some(Tokenizer::new(Vocab::Bpe(found)))
    }

    /// The tokenizer of these ranks that splits texts by `pattern`, with additional `special` tokens.
    ///
    /// # Errors
    /// [`TokenizerError::RankFile`] where a special token's id is another's, or its name comes twice.
    pub fn tokenizer(
        &self,
        pattern: Pattern,
        special: &[(String, u32)],
    ) -> Result<Tokenizer, TokenizerError> {
        let whole = |reason: String| TokenizerError::RankFile { line: 0, reason };
        for (at, (name, id)) in special.iter().enumerate() {
            let taken = self.tokens.binary_search_by_key(id, |(id, _)| *id).is_ok();
            if taken || special[..at].iter().any(|(_, other)| other == id) {
                return Err(whole(format!(
                    "id {id} of the special token {name} is another token's"
                )));
            }
            if special[..at].iter().any(|(other, _)| other == name) {
                return Err(whole(format!("the special token {name} comes twice")));
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

/// A token and its rank.
fn read_line(line: &[u8]) -> Result<(Vec<u8>, u32), &'static str> {
    const FORM: &str = "it must be a token in base64, a blank and a rank";
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
    fn a_built_in_vocabulary_s_ranks_are_that_vocabulary() {
        for kind in crate::hard_texts::BYTE_PAIRS {
            let bpe = Bpe::new(kind).unwrap();
            let file: String = bpe.tokens().map(|(id, bytes)| line(bytes, id)).collect();
            assert!(RankFile::is_one(file.as_bytes()));
            let found = RankFile::read(file.as_bytes()).unwrap().builtin().unwrap();
            assert_eq!(found.kind(), kind);
        }
    }

    /// Worked out by hand: the lowest rank is merged first, and not across the pattern's pieces.
    #[test]
    fn other_ranks_become_a_tokenizer_with_a_pattern() {
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
    fn damaged_files_are_refused_with_the_line() {
        assert!(!RankFile::is_one(b"{\"version\": 1}"));
        assert!(!RankFile::is_one(b"\x0a\x0e\x0a\x05<unk>"));
        assert_eq!(
            refused("YQ== 0\nYQ=\n"),
            "not a usable rank file: line 2: it must be a token in base64, a blank and a rank"
        );
        assert!(refused("Y@== 0\n").ends_with("line 1: the token is not base64"));
        assert!(refused("YQ== x\n").ends_with("line 1: the rank is not a whole number"));
        assert!(refused("YQ== 4294967295\n").ends_with("line 1: the rank is above 4,194,304"));
        assert!(
            refused("YQ== 0\nYg== 1\nYQ== 2\n")
                .ends_with("line 3: the token was on line 1 already")
        );
        assert!(refused("YQ== 0\nYg== 0\n").ends_with("rank file: rank 0 comes twice"));
        assert!(refused("YQ== 0\n").ends_with("no token is the single byte 0x00"));
        assert!(refused("").ends_with("no token is the single byte 0x00"));
    }

    #[test]
    fn special_tokens_must_have_ids_of_their_own() {
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
            refused(&[("<a>", 256), ("<a>", 257)]).ends_with("the special token <a> comes twice")
        );
    }
}
