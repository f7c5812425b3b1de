//! The tales as a dataset.

use std::path::Path;

use emberlm_tokenizer::Tokenizer;

use super::{TalesConfig, alphabet, nll_nats, tale};
use crate::block_hashes::DatasetBlocks;
use crate::staging::{Staging, Unfinished};
use crate::writer::{ShardOptions, SplitWriter};
use crate::{
    DEFAULT_SHARD_TOKENS, DataError, Floor, MANIFEST_FILE, Manifest, Split, SplitManifest, Splits,
    TokenWidth,
};

/// The last tenth of the tales is for validation.
const TRAIN_TALES_OF_TEN: u64 = 9;

/// Writes the dataset directory `out` with the tales of `config`, using the char tokenizer. Each tale is a document.
/// The last tenth of them, but at least one, is the validation split. The floor of each split in the manifest is the
/// exact negative log-probability per token of its tales.
///
/// # Errors
/// [`DataError::Value`] if there are fewer than 2 tales. As [`crate::prepare`] for the output.
pub fn write_tales_dataset(
    out: &Path,
    config: &TalesConfig,
    force: bool,
    command: &str,
) -> Result<Manifest, DataError> {
    if config.tales < 2 {
        return Err(DataError::Value {
            field: "tales",
            value: config.tales.to_string(),
            rule: "must be at least 2: one is for validation",
        });
    }
    let staging = Staging::begin(out, force, Unfinished::Discard)?;
    let tokenizer = Tokenizer::char_from_alphabet(alphabet()).map_err(|source| {
        let path = out.join(MANIFEST_FILE);
        DataError::ManifestTokenizer { path, source }
    })?;
    let train_tales = (config.tales / 10 * TRAIN_TALES_OF_TEN
        + config.tales % 10 * TRAIN_TALES_OF_TEN / 10)
        .min(config.tales - 1);
    let write =
        |split, indices| write_split(staging.folder(), &tokenizer, split, config.seed, indices);
    let (train, mut blocks) = write(Split::Train, 0..train_tales)?;
    let (val, val_blocks) = write(Split::Val, train_tales..config.tales)?;
    blocks.extend(val_blocks);
    let splits = Splits { train, val };
    let manifest = Manifest::new(command.to_owned(), tokenizer.spec(), splits);
    staging.commit(&manifest, &blocks)?;
    Ok(manifest)
}

fn write_split(
    folder: &Path,
    tokenizer: &Tokenizer,
    split: Split,
    seed: u64,
    indices: std::ops::Range<u64>,
) -> Result<(SplitManifest, DatasetBlocks), DataError> {
    let shards = ShardOptions {
        width: TokenWidth::for_vocab(tokenizer.vocab_size()),
        tokens: DEFAULT_SHARD_TOKENS,
        masked: false,
    };
    let mut writer = SplitWriter::new(folder, split, shards);
    let mut nats = 0.0;
    for index in indices {
        let text = tale(seed, index);
        nats += nll_nats(&text)?;
        let ids = tokenizer
            .encode(&text)
            .map_err(|source| DataError::Tokenize {
                path: folder.to_owned(),
                source,
            })?;
        writer.write(&ids, None, text.len() as u64, true)?;
    }
    let (mut manifest, blocks) = writer.finish()?;
    manifest.floor = Some(Floor {
        nats_per_token: nats / manifest.tokens as f64,
        source: "the entropy of these tales, a lower bound for every model".to_owned(),
    });
    Ok((manifest, blocks))
}
