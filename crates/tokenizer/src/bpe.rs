//! The byte-pair vocabularies that `tiktoken-rs` carries.

use std::collections::HashSet;
use std::fmt;
use std::sync::OnceLock;

use tiktoken_rs::CoreBPE;

use crate::{TokenizerError, TokenizerKind, patterns};

/// One of the three byte-pair vocabularies; each is loaded once per process.
#[derive(Clone, Copy)]
pub(crate) struct Bpe {
    core: &'static CoreBPE,
    kind: TokenizerKind,
    vocab_size: usize,
    end_of_text: u32,
    /// The vocabulary's hash, once somebody has asked for it.
    hash: &'static OnceLock<String>,
}

impl Bpe {
    /// GPT-2's vocabulary, which OpenAI also calls `r50k_base`.
    pub(crate) fn gpt2() -> Self {
        static HASH: OnceLock<String> = OnceLock::new();
        Self {
            core: tiktoken_rs::r50k_base_singleton(),
            kind: TokenizerKind::Gpt2,
            vocab_size: 50_257,
            end_of_text: 50_256,
            hash: &HASH,
        }
    }

    /// `cl100k_base`.
    pub(crate) fn cl100k() -> Self {
        static HASH: OnceLock<String> = OnceLock::new();
        Self {
            core: tiktoken_rs::cl100k_base_singleton(),
            kind: TokenizerKind::Cl100k,
            vocab_size: 100_277,
            end_of_text: 100_257,
            hash: &HASH,
        }
    }

    /// `o200k_base`.
    pub(crate) fn o200k() -> Self {
        static HASH: OnceLock<String> = OnceLock::new();
        Self {
            core: tiktoken_rs::o200k_base_singleton(),
            kind: TokenizerKind::O200k,
            vocab_size: 200_019,
            end_of_text: 199_999,
            hash: &HASH,
        }
    }

    pub(crate) fn kind(&self) -> TokenizerKind {
        self.kind
    }

    pub(crate) fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    pub(crate) fn end_of_text(&self) -> u32 {
        self.end_of_text
    }

    /// The pattern that splits a text into pieces, as a `tokenizer.json` has it.
    pub(crate) fn pattern(&self) -> &'static str {
        match self.kind {
            TokenizerKind::Cl100k => patterns::CL100K,
            TokenizerKind::O200k => patterns::O200K,
            _ => patterns::GPT2,
        }
    }

    /// The special tokens with their ids, by id.
    pub(crate) fn special_tokens(&self) -> Vec<(String, u32)> {
        let names = self.core.special_tokens();
        let named = |id| {
            let name = String::from_utf8(self.core.decode_bytes(&[id]).ok()?).ok()?;
            names.contains(name.as_str()).then_some((name, id))
        };
        (self.tokens().len() as u32..self.vocab_size as u32)
            .filter_map(named)
            .collect()
    }

    /// The bytes of every token that is not special, by rank, which is its id: they come before all others.
    pub(crate) fn tokens(&self) -> Vec<Vec<u8>> {
        let names = self.core.special_tokens();
        let bytes = |id| self.core.decode_bytes(&[id]).ok();
        let is_plain = |bytes: &Vec<u8>| !names.iter().any(|name| name.as_bytes() == bytes);
        (0..).map_while(bytes).take_while(is_plain).collect()
    }

    /// Where this vocabulary's hash is kept once it is known.
    pub(crate) fn hash_cache(&self) -> &'static OnceLock<String> {
        self.hash
    }

    /// The ids of `text`, whose special tokens are read as the plain text that they are.
    pub(crate) fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        // Not `encode_ordinary`: that one panics where the pattern matcher gives up.
        match self.core.encode(text, &HashSet::new()) {
            Ok((ids, _)) => Ok(ids),
            Err(error) => Err(TokenizerError::Split {
                kind: self.kind,
                reason: error.message,
            }),
        }
    }

    /// Appends the bytes of `id`; false where the vocabulary has no such id.
    pub(crate) fn push_bytes(&self, id: u32, out: &mut Vec<u8>) -> bool {
        match self.core.decode_bytes(&[id]) {
            Ok(bytes) => out.extend_from_slice(&bytes),
            Err(_) => return false,
        }
        true
    }
}

impl fmt::Debug for Bpe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bpe").field("kind", &self.kind).finish()
    }
}
