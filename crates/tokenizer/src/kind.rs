//! The closed set of tokenizer kinds, and the names of their files.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of the tokenizer file in a dataset, a checkpoint or a Hugging Face model directory.
pub const TOKENIZER_FILE: &str = "tokenizer.json";

/// The name of a SentencePiece model in a Hugging Face model directory.
pub(crate) const SENTENCE_PIECE_FILE: &str = "tokenizer.model";

/// The configuration that Hugging Face libraries write next to [`TOKENIZER_FILE`]. Only `eos_token` is read.
pub const TOKENIZER_CONFIG_FILE: &str = "tokenizer_config.json";

/// A kind of tokenizer. Names are lowercase in files and on the command line: `gpt2`, `p50k`, `cl100k`,
/// `o200k`, `char`, `byte`, and `tokenizer.json` for a tokenizer from a file.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum TokenizerKind {
    /// GPT-2's byte-pair encoding, called `r50k_base` by OpenAI: 50,257 ids.
    Gpt2,
    /// Codex's byte-pair encoding `p50k_base`, which adds runs of spaces to GPT-2's: 50,281 ids.
    P50k,
    /// GPT-4's byte-pair encoding `cl100k_base`: 100,277 ids.
    Cl100k,
    /// GPT-4o's byte-pair encoding `o200k_base`: 200,019 ids.
    O200k,
    /// One id per distinct character of a corpus.
    Char,
    /// One id per byte plus an end-of-text id: 257 ids.
    Byte,
    /// A Hugging Face `tokenizer.json`: byte-pair encoding, Unigram, WordPiece or WordLevel.
    #[serde(rename = "tokenizer.json")]
    File,
}

impl TokenizerKind {
    /// The kinds that can be requested by name, in display order: all but [`Self::File`].
    pub const NAMED: [Self; 6] = [
        Self::Gpt2,
        Self::P50k,
        Self::Cl100k,
        Self::O200k,
        Self::Char,
        Self::Byte,
    ];

    /// The kind's name. [`FromStr`](std::str::FromStr) parses the names of [`Self::NAMED`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpt2 => "gpt2",
            Self::P50k => "p50k",
            Self::Cl100k => "cl100k",
            Self::O200k => "o200k",
            Self::Char => "char",
            Self::Byte => "byte",
            Self::File => TOKENIZER_FILE,
        }
    }
}

impl fmt::Display for TokenizerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_round_trips_and_matches_serde() {
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
    fn unknown_names_list_the_choices() {
        let message = "GPT2".parse::<TokenizerKind>().unwrap_err().to_string();
        assert_eq!(
            message,
            "unknown tokenizer `GPT2` (did you mean `gpt2`?): choose one of gpt2, p50k, cl100k, o200k, char, byte"
        );
    }
}
