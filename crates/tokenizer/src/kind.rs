//! The closed list of tokenizers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::TokenizerError;

/// Which tokenizer; written in lower case wherever it is named: `gpt2`, `p50k`, `cl100k`, `o200k`, `char`, `byte`; and
/// `tokenizer.json` for one that a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenizerKind {
    /// GPT-2's byte-pair encoding, which OpenAI also calls `r50k_base`: 50,257 ids.
    Gpt2,
    /// Codex's byte-pair encoding `p50k_base`, GPT-2's with runs of blanks: 50,281 ids.
    P50k,
    /// GPT-4's byte-pair encoding `cl100k_base`: 100,277 ids.
    Cl100k,
    /// GPT-4o's byte-pair encoding `o200k_base`: 200,019 ids.
    O200k,
    /// One id per distinct character of a corpus.
    Char,
    /// One id per byte and one for the end of a text: 257 ids.
    Byte,
    /// The contents of a Hugging Face `tokenizer.json`: byte pairs, Unigram, WordPiece or whole words.
    #[serde(rename = "tokenizer.json")]
    File,
}

impl TokenizerKind {
    /// The kinds that are asked for by name, in the order in which they are listed to a user: all but [`Self::File`].
    pub const NAMED: [Self; 6] = [
        Self::Gpt2,
        Self::P50k,
        Self::Cl100k,
        Self::O200k,
        Self::Char,
        Self::Byte,
    ];

    /// The kind's name; [`FromStr`] reads those of [`Self::NAMED`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpt2 => "gpt2",
            Self::P50k => "p50k",
            Self::Cl100k => "cl100k",
            Self::O200k => "o200k",
            Self::Char => "char",
            Self::Byte => "byte",
            Self::File => crate::TOKENIZER_FILE,
        }
    }
}

impl fmt::Display for TokenizerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for TokenizerKind {
    type Err = TokenizerError;

    fn from_str(name: &str) -> Result<Self, TokenizerError> {
        // What OpenAI calls the vocabulary, which GPT-2 had first.
        let name = if name == "r50k" { "gpt2" } else { name };
        Self::NAMED
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| TokenizerError::UnknownKind {
                name: name.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back_and_serialized_alike() {
        for kind in TokenizerKind::NAMED {
            assert_eq!(kind.to_string().parse::<TokenizerKind>().unwrap(), kind);
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
        let file = serde_json::to_string(&TokenizerKind::File).unwrap();
        assert_eq!(file, format!("\"{}\"", TokenizerKind::File));
    }

    #[test]
    fn r50k_is_another_name_for_gpt2() {
        let kind: TokenizerKind = "r50k".parse().unwrap();
        assert_eq!(kind.to_string(), "gpt2");
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_choices() {
        let message = "GPT2".parse::<TokenizerKind>().unwrap_err().to_string();
        assert_eq!(
            message,
            "unknown tokenizer `GPT2` (did you mean `gpt2`?): choose one of gpt2, p50k, cl100k, o200k, char, byte"
        );
    }
}
