//! The built-in byte-pair vocabularies, loaded from `tiktoken-rs`.

use std::convert::Infallible;
use std::fmt;
use std::sync::OnceLock;

use tiktoken_rs::CoreBPE;

use crate::fast_encoder::FastEncoder;
use crate::ranks::Ranks;
use crate::{TokenizerKind, patterns};

/// A built-in byte-pair vocabulary. Each is loaded once per process and never freed.
#[derive(Clone, Copy)]
pub(crate) struct Bpe(&'static Vocabulary);

struct Vocabulary {
    info: &'static VocabularyInfo,
    /// The bytes of every id, including special tokens' names. `None` for unassigned ids.
    bytes: Vec<Option<&'static [u8]>>,
    special: Vec<(String, u32)>,
    ranks: Ranks,
    encoder: FastEncoder,
    /// The vocabulary's hash, computed on first use.
    hash: OnceLock<String>,
}

/// Properties of a vocabulary that are known before it is loaded.
struct VocabularyInfo {
    kind: TokenizerKind,
    vocab_size: usize,
    end_of_text: u32,
    pattern: &'static str,
    load: fn() -> Option<CoreBPE>,
    loaded: OnceLock<Option<Vocabulary>>,
}

static GPT2: VocabularyInfo = VocabularyInfo {
    kind: TokenizerKind::Gpt2,
    vocab_size: 50_257,
    end_of_text: 50_256,
    pattern: patterns::GPT2,
    load: || tiktoken_rs::r50k_base().ok(),
    loaded: OnceLock::new(),
};

/// The tokens for runs of spaces follow the end-of-text id.
static P50K: VocabularyInfo = VocabularyInfo {
    kind: TokenizerKind::P50k,
    vocab_size: 50_281,
    end_of_text: 50_256,
    pattern: patterns::GPT2,
    load: || tiktoken_rs::p50k_base().ok(),
    loaded: OnceLock::new(),
};

static CL100K: VocabularyInfo = VocabularyInfo {
    kind: TokenizerKind::Cl100k,
    vocab_size: 100_277,
    end_of_text: 100_257,
    pattern: patterns::CL100K,
    load: || tiktoken_rs::cl100k_base().ok(),
    loaded: OnceLock::new(),
};

static O200K: VocabularyInfo = VocabularyInfo {
    kind: TokenizerKind::O200k,
    vocab_size: 200_019,
    end_of_text: 199_999,
    pattern: patterns::O200K,
    load: || tiktoken_rs::o200k_base().ok(),
    loaded: OnceLock::new(),
};

impl Bpe {
    /// Loads the vocabulary of `kind`. Returns `None` if it is not a byte-pair vocabulary.
    pub(crate) fn new(kind: TokenizerKind) -> Option<Self> {
        let info = match kind {
            TokenizerKind::Gpt2 => &GPT2,
            TokenizerKind::P50k => &P50K,
            TokenizerKind::Cl100k => &CL100K,
            TokenizerKind::O200k => &O200K,
            TokenizerKind::Char | TokenizerKind::Byte | TokenizerKind::File => return None,
        };
        let load = || Vocabulary::load(info);
        info.loaded.get_or_init(load).as_ref().map(Self)
    }

    /// Returns the number of non-special tokens of `kind` without loading it. `None` if it is not a byte-pair
    /// vocabulary.
    pub(crate) fn plain_tokens(kind: TokenizerKind) -> Option<usize> {
        match kind {
            TokenizerKind::Gpt2 => Some(50_256),
            TokenizerKind::P50k => Some(50_280),
            TokenizerKind::Cl100k => Some(100_256),
            TokenizerKind::O200k => Some(199_998),
            TokenizerKind::Char | TokenizerKind::Byte | TokenizerKind::File => None,
        }
    }

    pub(crate) fn kind(&self) -> TokenizerKind {
        self.0.info.kind
    }

    pub(crate) fn vocab_size(&self) -> usize {
        self.0.info.vocab_size
    }

    pub(crate) fn end_of_text(&self) -> u32 {
        self.0.info.end_of_text
    }

    /// The regular expression that splits a text into pieces, as written in a `tokenizer.json`.
    pub(crate) fn pattern(&self) -> &'static str {
        self.0.info.pattern
    }

    /// The special tokens and their ids, sorted by id.
    pub(crate) fn special_tokens(&self) -> &'static [(String, u32)] {
        &self.0.special
    }

    /// The non-special tokens, sorted by rank. The rank is the id.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = (u32, &'static [u8])> {
        self.0.tokens()
    }

    /// The cell that caches the vocabulary's hash.
    pub(crate) fn hash_cache(&self) -> &'static OnceLock<String> {
        &self.0.hash
    }

    /// The encoder that splits texts into pieces.
    pub(crate) fn fast_encoder(&self) -> &'static FastEncoder {
        &self.0.encoder
    }

    /// Encodes `text`. Names of special tokens are encoded as plain text.
    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        let encode_piece = |piece: &str, ids: &mut Vec<u32>| {
            self.0.ranks.encode_piece(piece.as_bytes(), ids);
            Ok::<(), Infallible>(())
        };
        let Ok(ids) = self.0.encoder.encode(text, encode_piece);
        ids
    }

    /// Appends the bytes of `id`. Returns false if there is no such id.
    pub(crate) fn push_bytes(&self, id: u32, out: &mut Vec<u8>) -> bool {
        let bytes = self.0.bytes.get(id as usize).copied().flatten();
        bytes.map(|bytes| out.extend_from_slice(bytes)).is_some()
    }
}

impl Vocabulary {
    /// Copies the vocabulary out of `tiktoken-rs`, whose tables and matchers are then dropped.
    fn load(info: &'static VocabularyInfo) -> Option<Self> {
        let core = (info.load)()?;
        let decode = |id| core.decode_bytes(&[id]).ok();
        let decoded: Vec<_> = (0..info.vocab_size as u32).map(decode).collect();
        // The vocabulary is never freed, so a single leaked allocation can back all tokens.
        let all: &'static [u8] = decoded
            .iter()
            .flatten()
            .flatten()
            .copied()
            .collect::<Vec<u8>>()
            .leak();
        let mut rest = all;
        let mut cut = |bytes: &Option<Vec<u8>>| {
            let (mine, others) = rest.split_at_checked(bytes.as_ref()?.len())?;
            rest = others;
            Some(mine)
        };
        let bytes: Vec<_> = decoded.iter().map(&mut cut).collect();
        let names = core.special_tokens();
        let mut special = Vec::new();
        for (bytes, id) in bytes.iter().zip(0..) {
            let name = bytes.and_then(|bytes| std::str::from_utf8(bytes).ok());
            special.extend(
                name.filter(|name| names.contains(name))
                    .map(|name| (name.to_owned(), id)),
            );
        }
        let mut this = Self {
            info,
            bytes,
            special,
            ranks: Ranks::default(),
            encoder: FastEncoder::new(info.pattern)?,
            hash: OnceLock::new(),
        };
        this.ranks = Ranks::new(this.tokens());
        Some(this)
    }

    fn tokens(&self) -> impl Iterator<Item = (u32, &'static [u8])> {
        let plain = |(id, bytes): (u32, &Option<&'static [u8]>)| {
            let special = self.special.iter().any(|(_, special)| *special == id);
            Some((id, (*bytes)?)).filter(|_| !special)
        };
        (0..).zip(&self.bytes).filter_map(plain)
    }
}

impl fmt::Debug for Bpe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bpe").field("kind", &self.kind()).finish()
    }
}
