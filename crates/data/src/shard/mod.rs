//! Shards: token files that are byte-compatible with llm.c and modded-nanogpt.
//!
//! A header of 256 little-endian `i32` precedes the little-endian tokens. Its first three numbers describe them:
//!
//! | tokens | `[0]` | `[1]` | `[2]` |
//! |---|---|---|---|
//! | `u16` | 20240520 | 1 | number of tokens |
//! | `u32` | 20240801 | 7 | number of tokens |
//!
//! nanoGPT's files are `u16` tokens without a header ([`ShardLayout::Headerless`]). They can be read, but not
//! written.

mod blocks;
mod hashed_file;
mod mask;
mod mask_write;
mod read;
mod stream;
mod verified_map;
mod write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::DataError;

pub(crate) use blocks::{BLOCK_BYTES, BlockHashes, FileHashes};
pub(crate) use hashed_file::{HashedFile, file_hashes};
pub use mask::Mask;
pub(crate) use mask::{LEARNT, sum_mask};
pub(crate) use mask_write::MaskWriter;
pub use read::Shard;
pub(crate) use stream::ShardStream;
pub(crate) use verified_map::UnverifiedFile;
pub use write::ShardWriter;

/// The default number of tokens per shard.
pub const DEFAULT_SHARD_TOKENS: u64 = 100_000_000;

/// The maximum number of tokens that a header can state.
const MAX_SHARD_TOKENS: u64 = i32::MAX as u64;

/// The length of the header in bytes.
pub(crate) const HEADER_BYTES: u64 = 256 * 4;

/// The width of a token in a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenWidth {
    /// Two bytes, for vocabularies of up to 65,536 ids.
    U16,
    /// Four bytes.
    U32,
}

/// The file layout of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ShardLayout {
    /// A header of 1,024 bytes, then the tokens, as in llm.c and modded-nanogpt.
    #[default]
    #[serde(rename = "llm.c")]
    LlmC,
    /// Little-endian `u16` tokens without a header, as in nanoGPT.
    Headerless,
}

/// Checks the maximum number of tokens per shard.
pub(crate) fn check_shard_tokens(shard_tokens: u64) -> Result<(), DataError> {
    match (1..=MAX_SHARD_TOKENS).contains(&shard_tokens) {
        true => Ok(()),
        false => Err(DataError::Value {
            field: "shard_tokens",
            value: shard_tokens.to_string(),
            rule: "must be between 1 and 2147483647",
        }),
    }
}

impl ShardLayout {
    pub(crate) fn is_llm_c(&self) -> bool {
        *self == Self::LlmC
    }
}

impl TokenWidth {
    /// The smallest width for a vocabulary.
    pub fn for_vocab(vocab_size: usize) -> Self {
        if vocab_size <= 1 << 16 {
            Self::U16
        } else {
            Self::U32
        }
    }

    /// The width in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::U16 => 2,
            Self::U32 => 4,
        }
    }

    /// The first two numbers of the header: magic and version.
    pub(crate) const fn signature(self) -> (i32, i32) {
        match self {
            Self::U16 => (20_240_520, 1),
            Self::U32 => (20_240_801, 7),
        }
    }
}

/// The header of a shard of `count` tokens.
fn header(width: TokenWidth, count: i32) -> [u8; HEADER_BYTES as usize] {
    let (magic, version) = width.signature();
    let mut bytes = [0; HEADER_BYTES as usize];
    for (slot, number) in bytes.chunks_exact_mut(4).zip([magic, version, count]) {
        slot.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// The region of a shard's file that contains the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TokenRegion {
    width: TokenWidth,
    /// The offset of the first token, in bytes.
    first_byte: u64,
    tokens: u64,
}

/// Locates the tokens in a file of `file_bytes` bytes that begins with `head`, or returns the reason that it is not a
/// shard.
fn locate_tokens(layout: ShardLayout, head: &[u8], file_bytes: u64) -> Result<TokenRegion, String> {
    match layout {
        ShardLayout::LlmC => check_header(head, file_bytes).map(|(width, tokens)| TokenRegion {
            width,
            first_byte: HEADER_BYTES,
            tokens,
        }),
        ShardLayout::Headerless => match file_bytes % 2 {
            0 => Ok(TokenRegion {
                width: TokenWidth::U16,
                first_byte: 0,
                tokens: file_bytes / 2,
            }),
            _ => Err(format!(
                "{file_bytes} bytes are not a whole number of 16-bit tokens"
            )),
        },
    }
}

/// Decodes `bytes` and appends the tokens to `out`.
fn decode(width: TokenWidth, bytes: &[u8], out: &mut Vec<u32>) {
    match width {
        TokenWidth::U16 => {
            let (ids, _) = bytes.as_chunks::<2>();
            out.extend(ids.iter().map(|&id| u32::from(u16::from_le_bytes(id))));
        }
        TokenWidth::U32 => {
            let (ids, _) = bytes.as_chunks::<4>();
            out.extend(ids.iter().map(|&id| u32::from_le_bytes(id)));
        }
    }
}

/// Validates a header and the file length. Returns the width and number of tokens.
fn check_header(head: &[u8], file_bytes: u64) -> Result<(TokenWidth, u64), String> {
    if (head.len() as u64) < HEADER_BYTES {
        return Err(format!(
            "{file_bytes} bytes are less than its header's {HEADER_BYTES}"
        ));
    }
    let (numbers, _) = head.as_chunks::<4>();
    let [magic, version, count] = [0, 1, 2].map(|i| i32::from_le_bytes(numbers[i]));
    let width = [TokenWidth::U16, TokenWidth::U32]
        .into_iter()
        .find(|width| width.signature().0 == magic)
        .ok_or_else(|| format!("it begins with {magic}, not with 20240520 or 20240801"))?;
    if version != width.signature().1 {
        return Err(format!("version {version} of format {magic} is unknown"));
    }
    let tokens = u64::try_from(count)
        .map_err(|_| format!("its header states {count} tokens: it was not completely written"))?;
    let expected = HEADER_BYTES + tokens * width.bytes();
    if file_bytes != expected {
        return Err(format!(
            "{file_bytes} bytes, but the {tokens} tokens of its header need {expected}"
        ));
    }
    Ok((width, tokens))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vocabulary_size_determines_the_width() {
        assert_eq!(TokenWidth::for_vocab(65_536), TokenWidth::U16);
        assert_eq!(TokenWidth::for_vocab(65_537), TokenWidth::U32);
    }

    /// The beginning of a valid shard of 45 tokens, and the length of its file.
    fn good(width: TokenWidth) -> ([u8; HEADER_BYTES as usize], u64) {
        (header(width, 45), HEADER_BYTES + 45 * width.bytes())
    }

    #[test]
    fn wrong_file_length_is_rejected() {
        for width in [TokenWidth::U16, TokenWidth::U32] {
            let (head, bytes) = good(width);
            for len in 0..2 * bytes {
                let head = &head[..head.len().min(len as usize)];
                let region = locate_tokens(ShardLayout::LlmC, head, len);
                assert_eq!(region.is_ok(), len == bytes, "{len}");
            }
        }
        for len in 0..9 {
            let region = locate_tokens(ShardLayout::Headerless, &[], len);
            assert_eq!(
                region.map(|p| p.tokens).ok(),
                (len % 2 == 0).then_some(len / 2)
            );
        }
    }

    #[test]
    fn wrong_magic_version_or_count_is_rejected() {
        for width in [TokenWidth::U16, TokenWidth::U32] {
            let (good, bytes) = good(width);
            for at in 0..good.len() {
                for byte in 0..=255 {
                    let mut head = good;
                    head[at] = byte;
                    let region = locate_tokens(ShardLayout::LlmC, &head, bytes);
                    // The rest of the header is unused, also in llm.c.
                    let same = at >= 12 || byte == good[at];
                    assert_eq!(region.is_ok(), same, "{byte} at {at}");
                }
            }
        }
    }
}
