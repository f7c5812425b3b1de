//! The pre-tokenization patterns that a user can select by name.

use std::fmt;
use std::str::FromStr;

use crate::{TokenizerError, patterns};

emberlm_system::named! {
    /// A pattern that splits a text into pieces before byte-pair merging. Merges do not cross pieces.
    pub enum Pattern {
        /// GPT-2's pattern: `gpt2`.
        Gpt2 = "gpt2",
        /// GPT-4's pattern: `cl100k` or `gpt4`. Splits numbers into groups of up to three digits.
        Cl100k = "cl100k",
        /// GPT-4o's pattern: `o200k` or `gpt4o`. Also splits words before capital letters.
        O200k = "o200k",
        /// Llama 3's pattern: `llama3`. Nearly the same as GPT-4's.
        Llama3 = "llama3",
        /// Qwen 2's pattern: `qwen2`. The same as Llama 3's, but splits numbers into single digits.
        Qwen2 = "qwen2",
    }
}

impl Pattern {
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
        let canonical = match name {
            "gpt4" => "cl100k",
            "gpt4o" => "o200k",
            name => name,
        };
        let found = Self::ALL
            .into_iter()
            .find(|pattern| pattern.name() == canonical);
        found.ok_or_else(|| TokenizerError::UnknownPattern {
            name: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_parse_by_name_and_by_model() {
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
