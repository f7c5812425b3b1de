//! Converts text to token ids and back.
//!
//! | type | purpose |
//! |---|---|
//! | [`Tokenizer`] | encodes and decodes: built-in vocabularies, characters, bytes, any `tokenizer.json` |
//! | [`TextStream`], [`StopStrings`] | generated tokens as displayable text, up to a stop string |
//! | [`DecodeStream`] | incremental decoding, without stop strings |
//! | [`chat`] | renders and encodes conversations with chat templates |
//! | [`BpeTraining`] | trains a byte-level byte-pair vocabulary |
//! | [`TokenizerSpec`] | identifies a tokenizer in datasets and checkpoints |
//!
//! ```
//! use emberlm_tokenizer::{Tokenizer, TokenizerKind};
//!
//! let tokenizer = Tokenizer::builtin(TokenizerKind::Gpt2)?;
//! let ids = tokenizer.encode("Hello world")?;
//! assert_eq!(ids, [15496, 995]);
//! assert_eq!(tokenizer.decode(&ids)?, "Hello world");
//! # Ok::<(), emberlm_tokenizer::TokenizerError>(())
//! ```
//!
//! # Files
//!
//! | file | contents |
//! |---|---|
//! | `kind` | [`TokenizerKind`]: the closed set of tokenizers, and the names of their files |
//! | `tokenizer` | [`Tokenizer`]: encodes and decodes with any vocabulary |
//! | `bpe`, `ranks` | the byte-pair vocabularies of `tiktoken-rs`; byte-pair encoding of one piece |
//! | `fast_encoder`, `splitter`, `piece_cache` | encoding piece by piece, with a DFA splitter and a cache |
//! | `char` | one token per distinct character, as in nanoGPT's character-level examples |
//! | `byte` | one token per byte |
//! | `file` | a Hugging Face `tokenizer.json`, through the `tokenizers` crate |
//! | `guard` | rejects such files if the crate would panic on them |
//! | `bounds` | rejects such files if they would take too much time or memory |
//! | `decoder` | token-by-token decoding for such files |
//! | `sequence` | [`SequenceEncoder`]: texts and pairs with special tokens, for encoders |
//! | `rank_file` | [`RankFile`]: tiktoken's rank files |
//! | `sentence_piece` | converts SentencePiece models to a `tokenizer.json` |
//! | `gguf` | [`GgufTokenizer`], [`GgufVocabulary`]: convert the tokenizer of a GGUF file to a `tokenizer.json` and back |
//! | `train` | [`BpeTraining`]: trains a byte-level byte-pair vocabulary |
//! | `statistics` | [`Statistics`]: statistics of texts and their tokens |
//! | `choice` | [`TokenizerChoice`]: a user's choice, by name or by path |
//! | `disk` | loads tokenizers from files and specifications, and saves them |
//! | `config_file` | settings of a `tokenizer_config.json` that disagree with the `tokenizer.json` |
//! | `export` | writes any tokenizer as a `tokenizer.json` and a `tokenizer_config.json` |
//! | `pattern` | [`Pattern`]: the pre-tokenization patterns by name |
//! | `merges`, `patterns`, `byte_level` | merges, regular expressions and the byte alphabet of byte-pair vocabularies |
//! | `special` | special tokens by name |
//! | `markup`, `barriers` | encoding with special tokens in the text, except where they are untrusted |
//! | [`chat`] | conversations as token ids and loss masks |
//! | `agreement` | tests whether two tokenizers assign the same meaning to their ids |
//! | `prompt` | prompts, with the special tokens that precede a text |
//! | `least_tokens` | [`LeastTokens`]: a lower bound of the number of tokens of a text |
//! | `cut` | positions at which a text can be cut and encoded in parts |
//! | `stream` | [`DecodeStream`]: incremental decoding |
//! | `stop_strings` | [`StopStrings`]: ends a text at the first stop string |
//! | `text_stream` | [`TextStream`]: generated tokens as displayable text, up to a stop string |
//! | `token_bytes` | [`TokenBytes`]: the number of bytes of text of each id |
//! | `vocabulary` | [`Tokenizer::from_words`], [`Tokenizer::of_ids`]: the caller's own vocabularies |
//! | `words` | [`Tokenizer::word_starts`]: the tokens that begin a word |
//! | `spec` | [`TokenizerSpec`]: a tokenizer's identity, stored with datasets and checkpoints |
//! | `error` | [`TokenizerError`] |

mod agreement;
mod barriers;
mod bounds;
mod bpe;
mod byte;
mod byte_level;
mod char;
pub mod chat;
mod choice;
mod config_file;
mod cut;
mod decoder;
mod disk;
mod error;
mod export;
mod fast_encoder;
mod file;
mod gguf;
mod guard;
mod kind;
mod least_tokens;
mod markup;
mod merges;
mod pattern;
mod patterns;
mod piece_cache;
mod prompt;
mod rank_file;
mod ranks;
mod sentence_piece;
mod sequence;
mod spec;
mod special;
mod splitter;
mod statistics;
mod stop_strings;
mod stream;
#[cfg(test)]
mod test_texts;
mod text_stream;
mod token_bytes;
mod tokenizer;
mod train;
mod vocabulary;
mod words;

pub use choice::TokenizerChoice;
pub use config_file::config_warnings;
pub use cut::Cut;
pub use error::TokenizerError;
pub use gguf::{GgufTokenizer, GgufTokenizerOptions, GgufVocabulary};
pub use kind::{TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, TokenizerKind};
pub use least_tokens::LeastTokens;
pub use pattern::Pattern;
pub use rank_file::RankFile;
pub use sequence::{EncodedSequence, SequenceEncoder};
pub use spec::TokenizerSpec;
pub use statistics::{Share, Statistics, TokenCounts};
pub use stop_strings::{Passed, StopStringError, StopStrings};
pub use stream::DecodeStream;
pub use text_stream::{TextDelta, TextStream};
pub use token_bytes::TokenBytes;
pub use tokenizer::Tokenizer;
pub use train::{BpeOptions, BpeTraining, PieceCounts};
