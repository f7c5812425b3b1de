//! Text to token ids and back.
//!
//! | type | purpose |
//! |---|---|
//! | [`Tokenizer`] | encodes and decodes: built-in vocabularies, characters, bytes, any `tokenizer.json` |
//! | [`TextStream`], [`StopStrings`] | generated tokens as text that can be displayed |
//! | [`DecodeStream`] | token ids as text, without stop strings |
//! | [`chat`] | conversations by chat templates |
//! | [`BpeTraining`] | trains a byte-level byte-pair vocabulary |
//! | [`TokenizerSpec`] | identifies a tokenizer beside data and weights |
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
//! | file | what it holds |
//! |---|---|
//! | `kind` | [`TokenizerKind`]: the closed list of tokenizers, by name |
//! | `tokenizer` | [`Tokenizer`]: encode, decode, what a vocabulary consists of |
//! | `bpe`, `ranks` | the byte-pair vocabularies that `tiktoken-rs` carries, and the ids of one piece |
//! | `fast_encoder`, `splitter`, `piece_cache` | a text's ids, piece by piece: split by an automaton, most pieces remembered |
//! | `char` | one token per distinct character, as nanoGPT's character-level examples |
//! | `byte` | one token per byte |
//! | `file` | what a Hugging Face `tokenizer.json` holds, through the `tokenizers` crate |
//! | `guard` | what is refused of such a file, since the crate would panic at it |
//! | `bounds` | what is refused of such a file, since it would take too much time or memory |
//! | `pieces` | such a file's decoder, token by token |
//! | `rank_file` | [`RankFile`]: tiktoken's files of ranks |
//! | `sequence` | [`SequenceEncoder`]: texts and pairs with special tokens, for encoders |
//! | `sentence_piece` | SentencePiece models as a `tokenizer.json` |
//! | `train` | [`BpeTraining`]: a byte-level byte-pair vocabulary from texts |
//! | `statistics` | [`Statistics`]: what tokenizers make of a text, in numbers |
//! | `choice` | [`TokenizerChoice`]: a tokenizer as it is asked for, by name or by path |
//! | `disk` | a tokenizer from its file, and from what is written beside data and weights |
//! | `export` | any tokenizer as a `tokenizer.json` and a `tokenizer_config.json` |
//! | `pattern` | [`Pattern`]: the patterns by name |
//! | `merges`, `patterns`, `byte_level` | what byte-pair vocabularies are in such a file: merges, pieces, bytes |
//! | `special` | special tokens by name |
//! | `markup`, `barriers` | text in which their names stand for them, and where they do not |
//! | [`chat`] | conversations as token ids, and which of them are to be learnt |
//! | `agreement` | whether two tokenizers mean the same by their ids |
//! | `prompt` | a prompt's ids: a text's, after what a template puts before it |
//! | `cut` | where a text can be cut so that its parts are encoded apart |
//! | `stream` | [`DecodeStream`]: text as it becomes complete, token by token |
//! | `stop_strings` | [`StopStrings`]: ends a text at the first of a few strings |
//! | `text_stream` | [`TextStream`]: generated tokens as text that can be displayed, up to a stop string |
//! | `token_bytes` | [`TokenBytes`]: the number of bytes of text of each id |
//! | `vocabulary` | [`Tokenizer::from_words`], [`Tokenizer::of_ids`]: the caller's vocabularies |
//! | `spec` | [`TokenizerSpec`]: what is written beside data and weights to find the same tokenizer again |
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
mod cut;
mod disk;
mod error;
mod export;
mod fast_encoder;
mod file;
mod guard;
#[cfg(test)]
mod hard_texts;
mod kind;
mod markup;
mod merges;
mod pattern;
mod patterns;
mod piece_cache;
mod pieces;
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
mod text_stream;
mod token_bytes;
mod tokenizer;
mod train;
mod vocabulary;

pub use choice::TokenizerChoice;
pub use cut::Cut;
pub use disk::{TOKENIZER_CONFIG_FILE, TOKENIZER_FILE};
pub use error::TokenizerError;
pub use kind::TokenizerKind;
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
