//! Verification of a dataset against its manifest. It reports all problems, not only the first.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use emberlm_tokenizer::{TOKENIZER_FILE, TokenizerKind};
use serde::Serialize;

use crate::block_hashes::{BLOCKS_FILE, DatasetBlocks};
use crate::shard::{BlockHashes, FileHashes, sum_mask};
use crate::survey::{Survey, Vocabulary};
use crate::{DataError, Dataset, MANIFEST_FILE, MaskEntry, ShardEntry, Split};

/// The result of a verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[must_use]
pub struct Verification {
    /// Every file in the manifest, in order: each shard, then its mask.
    pub files: Vec<FileCheck>,
    /// Problems of whole splits, one sentence each.
    pub splits: Vec<String>,
    /// Files in the folder that do not belong to the dataset. These are not problems.
    pub foreign: Vec<String>,
}

/// The result for one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileCheck {
    /// The file name in the dataset folder.
    pub file: String,
    /// The number of tokens, according to the manifest.
    pub tokens: u64,
    /// The problems found, one sentence each.
    pub problems: Vec<String>,
}

impl Verification {
    /// Returns true if there are no problems.
    pub fn is_whole(&self) -> bool {
        self.splits.is_empty() && self.files.iter().all(|file| file.problems.is_empty())
    }

    /// All problems, each with its file.
    pub fn problems(&self) -> Vec<String> {
        let of_file = |check: &FileCheck| {
            let name = check.file.clone();
            let problems = check.problems.clone().into_iter();
            problems.map(move |problem| format!("{name}: {problem}"))
        };
        let files = self.files.iter().flat_map(of_file);
        files.chain(self.splits.iter().cloned()).collect()
    }
}

/// Reads every file of `dataset` and compares it with the manifest: length, BLAKE3, tokens, documents and bytes of
/// text. Also checks that ids are within the vocabulary and that masks contain only valid bytes. `progress` receives
/// the number of bytes read since the last call.
///
/// [`Dataset::open`] has already checked that the counts of a split are the sums of those of its shards. Two
/// comparisons have exceptions:
///
/// - Every document begins with an end-of-text token, so an unmasked shard must have as many of them as documents. A
///   masked shard may have more, since conversations can end with one. If the mask indexes documents, its marks are
///   counted instead.
/// - Bytes of text are only compared if the tokenizer is built in and no shard has a mask: the tokenizer of a
///   `tokenizer.json` may normalize text.
///
/// # Errors
/// Fails if the folder cannot be listed. A file that cannot be read is reported as a problem.
pub fn verify(dataset: &Dataset, progress: &dyn Fn(u64)) -> Result<Verification, DataError> {
    let mut found = Verification {
        files: Vec::new(),
        splits: Vec::new(),
        foreign: foreign(dataset)?,
    };
    let vocabulary = Vocabulary::of(dataset.tokenizer());
    let blocks = match DatasetBlocks::read(dataset.folder()) {
        Ok(blocks) => blocks,
        Err(error) => {
            found.splits.push(error.to_string());
            DatasetBlocks::default()
        }
    };
    for split in Split::ALL {
        let manifest = dataset.manifest().split(split);
        let (mut previous, mut bytes) = (None, Some(0));
        for entry in &manifest.shards {
            let path = dataset.folder().join(&entry.file);
            let survey = vocabulary.survey(&path, entry.layout, &mut previous, progress);
            let problems = match &survey {
                Ok(survey) => shard_problems(entry, survey, &vocabulary, &blocks),
                Err(error) => vec![without_path(error, &path)],
            };
            let of_shard = survey.ok().and_then(|survey| survey.bytes);
            bytes = bytes.zip(of_shard).map(|(a, b)| a + b);
            found.files.push(FileCheck {
                file: entry.file.clone(),
                tokens: entry.tokens,
                problems,
            });
            if let Some(mask) = &entry.mask {
                found.files.push(FileCheck {
                    file: mask.file.clone(),
                    tokens: entry.tokens,
                    problems: mask_problems(dataset.folder(), mask, entry, &blocks, progress),
                });
            }
        }
        let masked = manifest.is_masked();
        let exact = dataset.tokenizer().kind() != TokenizerKind::File && !masked;
        if let Some(bytes) = bytes.filter(|&bytes| exact && bytes != manifest.bytes) {
            found.splits.push(format!(
                "split `{split}`: its tokens are {bytes} bytes of text, but the manifest says {}",
                manifest.bytes
            ));
        }
    }
    Ok(found)
}

impl Dataset {
    /// Checks that every file matches the manifest. Use [`verify()`] for a detailed report.
    ///
    /// # Errors
    /// [`DataError::Damaged`] with all problems found.
    pub fn verify(&self) -> Result<(), DataError> {
        let problems = verify(self, &|_| {})?.problems();
        match problems.is_empty() {
            true => Ok(()),
            false => Err(DataError::Damaged {
                folder: self.folder().to_owned(),
                problems,
            }),
        }
    }
}

fn shard_problems(
    entry: &ShardEntry,
    found: &Survey,
    vocabulary: &Vocabulary,
    blocks: &DatasetBlocks,
) -> Vec<String> {
    let mut problems = Vec::new();
    let mut differs = |what: &str, found: u64, stated: u64| {
        problems.push(format!("{found} {what}, but the manifest says {stated}"));
    };
    if found.tokens != entry.tokens {
        differs("tokens", found.tokens, entry.tokens);
    }
    let documents = found.ends_of_text;
    let enough = match &entry.mask {
        None => documents == entry.documents,
        Some(mask) => mask.indexes_documents || documents >= entry.documents,
    };
    if vocabulary.end_of_text.is_some() && !enough {
        differs("end-of-text tokens", documents, entry.documents);
    }
    if let Some(outside) = found.outside {
        let more = match outside.count {
            1 => String::new(),
            count => format!(", and {} more", count - 1),
        };
        problems.push(format!(
            "token {} at position {} is outside the vocabulary of {}{more}",
            outside.id, outside.position, vocabulary.size
        ));
    }
    let expected = (entry.blake3.as_str(), blocks.of(&entry.file));
    problems.extend(hash_problem(&found.hashes, expected));
    problems
}

fn mask_problems(
    folder: &Path,
    entry: &MaskEntry,
    shard: &ShardEntry,
    blocks: &DatasetBlocks,
    progress: &dyn Fn(u64),
) -> Vec<String> {
    let path = folder.join(&entry.file);
    let tokens = shard.tokens;
    let found = match sum_mask(&path, entry.indexes_documents, progress) {
        Ok(found) => found,
        Err(error) => return vec![without_path(&error, &path)],
    };
    let mut problems = Vec::new();
    if found.bytes != tokens {
        let bytes = found.bytes;
        problems.push(format!("{bytes} bytes, but its shard has {tokens} tokens"));
    }
    if let Some((at, byte, rule)) = found.wrong {
        problems.push(format!("byte {byte} at {at}: {rule}"));
    }
    if entry.indexes_documents && found.documents != shard.documents {
        let (found, stated) = (found.documents, shard.documents);
        problems.push(format!("{found} documents, but the manifest says {stated}"));
    }
    if found.learnt != entry.learnt {
        let (found, stated) = (found.learnt, entry.learnt);
        problems.push(format!(
            "{found} tokens with a loss, but the manifest says {stated}"
        ));
    }
    let expected = (entry.blake3.as_str(), blocks.of(&entry.file));
    problems.extend(hash_problem(&found.hashes, expected));
    problems
}

/// The difference between a file's hashes and the hashes in the manifest and in `dataset.blocks.json`.
fn hash_problem(
    found: &FileHashes,
    (blake3, blocks): (&str, Option<&BlockHashes>),
) -> Option<String> {
    let differs = blocks.and_then(|blocks| found.blocks.first_difference(blocks));
    if found.blake3 == blake3 {
        return differs
            .map(|_| format!("its block hashes in {BLOCKS_FILE} belong to another file"));
    }
    let location = differs.map_or(String::new(), |start| {
        format!("; the first block that differs begins at byte {start}")
    });
    let found = &found.blake3;
    Some(format!(
        "its BLAKE3 is {found}, but the manifest says {blake3}{location}"
    ))
}

/// The error's message without the path, for a list of problems by file.
fn without_path(error: &DataError, path: &Path) -> String {
    match error {
        DataError::Shard { reason, .. } => reason.clone(),
        DataError::Io { source, .. } => source.to_string(),
        error => error
            .to_string()
            .replace(&format!("{} ", path.display()), ""),
    }
}

/// The files in the folder that the manifest does not list, sorted.
fn foreign(dataset: &Dataset) -> Result<Vec<String>, DataError> {
    let (folder, manifest) = (dataset.folder(), dataset.manifest());
    let mut ours: HashSet<&str> = manifest
        .files()
        .chain([MANIFEST_FILE, BLOCKS_FILE])
        .collect();
    if manifest.tokenizer.kind == TokenizerKind::File {
        ours.insert(TOKENIZER_FILE);
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(DataError::io("read", folder))? {
        let entry = entry.map_err(DataError::io("read", folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !ours.contains(name.as_str()) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}
