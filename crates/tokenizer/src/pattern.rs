//! The patterns by name, for those who choose one.

use std::fmt;
use std::str::FromStr;

use crate::{TokenizerError, patterns};

/// The pattern by which a byte-pair vocabulary splits a text into pieces; merges stay within a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// GPT-2's: `gpt2`.
    Gpt2,
    /// GPT-4's, numbers in groups of up to three digits: `cl100k`, or `gpt4`.
    Cl100k,
    /// GPT-4o's, words also cut before capitals: `o200k`, or `gpt4o`.
    O200k,
    /// Llama 3's, nearly GPT-4's: `llama3`.
    Llama3,
    /// Qwen 2's, Llama 3's with single digits: `qwen2`.
    Qwen2,
}

impl Pattern {
    /// All of them, in the order in which they are listed to a user.
    pub const ALL: [Self; 5] = [
        Self::Gpt2,
        Self::Cl100k,
        Self::O200k,
        Self::Llama3,
        Self::Qwen2,
    ];

    /// The pattern's name; [`FromStr`] also reads `gpt4` and `gpt4o`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpt2 => "gpt2",
            Self::Cl100k => "cl100k",
            Self::O200k => "o200k",
            Self::Llama3 => "llama3",
            Self::Qwen2 => "qwen2",
        }
    }

    /// The regular expression.
    pub(crate) const fn expression(self) -> &'static str {
        match self {
            Self::Gpt2 => patterns::GPT2,
            Self::Cl100k => patterns::CL100K,
            Self::O200k => patterns::O200K,
            Self::Llama3 => patterns::LLAMA3,
            Self::Qwen2 => patterns::QWEN2,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Pattern {
    type Err = TokenizerError;

    fn from_str(name: &str) -> Result<Self, TokenizerError> {
        let meant = match name {
            "gpt4" => "cl100k",
            "gpt4o" => "o200k",
            name => name,
        };
        let found = Self::ALL
            .into_iter()
            .find(|pattern| pattern.name() == meant);
        found.ok_or_else(|| TokenizerError::UnknownPattern {
            name: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_read_by_their_names_and_by_their_models() {
        for pattern in Pattern::ALL {
            assert_eq!(pattern.to_string().parse(), Ok(pattern));
        }
        assert_eq!("gpt4".parse(), Ok(Pattern::Cl100k));
        assert_eq!("gpt4o".parse(), Ok(Pattern::O200k));
        let message = "gpt5".parse::<Pattern>().unwrap_err().to_string();
        assert_eq!(
            message,
            "unknown pattern `gpt5`: choose one of gpt2, cl100k (gpt4), o200k (gpt4o), llama3, qwen2"
        );
    }
}
