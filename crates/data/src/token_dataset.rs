//! Writing the caller's token ids as a dataset.

use std::path::Path;

use emberlm_tokenizer::Tokenizer;

use crate::block_hashes::DatasetBlocks;
use crate::staging::{Staging, Unfinished};
use crate::writer::{ShardOptions, SplitWriter};
use crate::{DEFAULT_SHARD_TOKENS, DataError, Manifest, Split, SplitManifest, Splits, TokenWidth};

/// Options of [`write_token_dataset`].
#[derive(Clone, Debug)]
pub struct TokenDatasetOptions {
    /// The maximum number of tokens per shard.
    pub shard_tokens: u64,
    /// Replaces an existing dataset.
    pub force: bool,
    /// The command line to record in the manifest.
    pub command: String,
}

impl Default for TokenDatasetOptions {
    fn default() -> Self {
        Self {
            shard_tokens: DEFAULT_SHARD_TOKENS,
            force: false,
            command: String::new(),
        }
    }
}

/// Writes the documents of two splits as the dataset directory `out`. If the tokenizer has an end-of-text token, it
/// is written before each document, as in every dataset. Use [`Tokenizer::of_ids`] or [`Tokenizer::from_words`] for
/// ids that were not produced by a published tokenizer.
///
/// ```
/// use emberlm_data::{Dataset, Split, TokenDatasetOptions, write_token_dataset};
/// use emberlm_tokenizer::Tokenizer;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let out = folder.path().join("melodies");
/// let tokenizer = Tokenizer::of_ids(128, None)?;
/// let (train, val) = ([vec![60, 62, 64], vec![64, 62, 60]], [vec![60, 64]]);
/// write_token_dataset(&out, &tokenizer, train, val, &TokenDatasetOptions::default())?;
/// assert_eq!(Dataset::open(&out)?.manifest().split(Split::Train).tokens, 6);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`DataError::TokenOutOfRange`] if an id is outside the vocabulary, [`DataError::Value`] if a document contains the
/// end-of-text token. As [`crate::prepare`] for the output.
pub fn write_token_dataset<T: AsRef<[u32]>>(
    out: impl AsRef<Path>,
    tokenizer: &Tokenizer,
    train: impl IntoIterator<Item = T>,
    val: impl IntoIterator<Item = T>,
    options: &TokenDatasetOptions,
) -> Result<Manifest, DataError> {
    if options.shard_tokens == 0 {
        return Err(DataError::Value {
            field: "shard_tokens",
            value: "0".to_owned(),
            rule: "must be at least 1",
        });
    }
    let staging = Staging::begin(out.as_ref(), options.force, Unfinished::Discard)?;
    let shards = ShardOptions {
        width: TokenWidth::for_vocab(tokenizer.vocab_size()),
        tokens: options.shard_tokens,
        masked: false,
    };
    let folder = staging.folder();
    let (train, mut blocks) = write_split(folder, Split::Train, shards, tokenizer, train)?;
    let (val, val_blocks) = write_split(folder, Split::Val, shards, tokenizer, val)?;
    blocks.extend(val_blocks);
    staging.save_tokenizer(tokenizer)?;
    let splits = Splits { train, val };
    let manifest = Manifest::new(options.command.clone(), tokenizer.spec(), splits);
    staging.commit(&manifest, &blocks)?;
    Ok(manifest)
}

fn write_split<T: AsRef<[u32]>>(
    folder: &Path,
    split: Split,
    shards: ShardOptions,
    tokenizer: &Tokenizer,
    documents: impl IntoIterator<Item = T>,
) -> Result<(SplitManifest, DatasetBlocks), DataError> {
    let mut writer = SplitWriter::new(folder, split, shards);
    let (vocab_size, end_of_text) = (tokenizer.vocab_size(), tokenizer.end_of_text());
    let mut position = 0;
    for document in documents {
        let ids = document.as_ref();
        if let Some(end) = end_of_text.filter(|end| ids.contains(end)) {
            return Err(DataError::Value {
                field: "document",
                value: format!("with token {end}"),
                rule: "must not contain the end-of-text token, which is written before each document",
            });
        }
        if let Some(at) = ids.iter().position(|&id| id as usize >= vocab_size) {
            return Err(DataError::TokenOutOfRange {
                path: folder.join(split.name()),
                position: position + at as u64,
                id: ids[at],
                vocab_size,
            });
        }
        let with_end: Vec<u32> = end_of_text.into_iter().chain(ids.iter().copied()).collect();
        position += with_end.len() as u64;
        // The number of text bytes is unknown.
        writer.write(&with_end, None, 0, true)?;
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dataset, verify};

    #[test]
    fn ids_and_vocabulary_round_trip() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("d");
        let tokenizer = Tokenizer::from_words(["a", "b", "end"], Some(2)).unwrap();
        let train = vec![vec![0, 1], vec![1, 1]];
        let options = TokenDatasetOptions {
            shard_tokens: 4,
            ..TokenDatasetOptions::default()
        };
        write_token_dataset(&out, &tokenizer, train, vec![vec![0]], &options).unwrap();
        let dataset = Dataset::open(&out).unwrap();
        let split = dataset.split(Split::Train);
        assert_eq!(split.unwrap().read(0, 6).unwrap(), [2, 0, 1, 2, 1, 1]);
        assert_eq!(dataset.tokenizer().spec(), tokenizer.spec());
        assert_eq!(dataset.manifest().split(Split::Train).documents, 2);
        assert_eq!(dataset.manifest().split(Split::Train).shards.len(), 2);
        let found = verify(&dataset, &|_| {}).unwrap();
        assert_eq!(found.splits, Vec::<String>::new());
        for file in found.files {
            assert_eq!(file.problems, Vec::<String>::new(), "{}", file.file);
        }
    }

    #[test]
    fn document_with_end_of_text_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let tokenizer = Tokenizer::of_ids(3, Some(2)).unwrap();
        let (train, val) = ([vec![0, 2]], [vec![1]]);
        let options = TokenDatasetOptions::default();
        let error = write_token_dataset(folder.path().join("d"), &tokenizer, train, val, &options);
        let message = error.unwrap_err().to_string();
        assert!(
            message.contains("must not contain the end-of-text token"),
            "{message}"
        );
    }

    #[test]
    fn id_outside_the_vocabulary_leaves_no_files() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("d");
        let tokenizer = Tokenizer::of_ids(3, None).unwrap();
        let none: [Vec<u32>; 0] = [];
        let train = vec![vec![0, 1], vec![2, 3]];
        let options = TokenDatasetOptions::default();
        let error = write_token_dataset(&out, &tokenizer, train, none, &options);
        let message = error.unwrap_err().to_string();
        assert!(
            message.contains("token 3 at position 3 is outside the vocabulary of 3"),
            "{message}"
        );
        assert!(!out.exists());
    }
}
