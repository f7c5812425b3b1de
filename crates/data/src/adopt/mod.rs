//! Adoption of other programs' token files as a dataset: the files stay unchanged, and a manifest is written for
//! them.
//!
//! | file | contents |
//! |---|---|
//! | `files` | selects the token files of each split |
//! | `location` | writes the manifest next to the files, or into a new folder with links to them |

mod files;
mod location;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use emberlm_tokenizer::{Tokenizer, TokenizerChoice, TokenizerKind};

use self::files::TokenFiles;
use self::location::DatasetLocation;
use crate::block_hashes::DatasetBlocks;
use crate::shard::HEADER_BYTES;
use crate::survey::{Survey, Vocabulary};
use crate::{DataError, Manifest, ShardEntry, ShardLayout, Split, SplitManifest, Splits};

/// Options of [`Adoption::find`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptOptions {
    /// The tokenizer that produced the files.
    pub tokenizer: TokenizerChoice,
    /// For [`TokenizerKind::Char`]: the text file whose distinct characters are the alphabet.
    pub alphabet: Option<PathBuf>,
    /// A pattern for the names of the training files, such as `part_0*.bin`.
    pub train: Option<String>,
    /// A pattern for the names of the validation files.
    pub val: Option<String>,
    /// A folder to create with links to the files. `None` writes the manifest next to the files.
    pub out: Option<PathBuf>,
    /// Replaces an existing manifest or dataset.
    pub force: bool,
    /// The command line to record in the manifest.
    pub command: String,
}

/// GPT-2 token files selected by name, with the manifest next to them.
impl Default for AdoptOptions {
    fn default() -> Self {
        Self {
            tokenizer: TokenizerKind::Gpt2.into(),
            alphabet: None,
            train: None,
            val: None,
            out: None,
            force: false,
            command: String::new(),
        }
    }
}

/// Token files that were found but not read yet.
pub struct Adoption {
    folder: PathBuf,
    files: TokenFiles,
    location: DatasetLocation,
    tokenizer: Tokenizer,
    command: String,
}

/// The result of an adoption.
#[derive(Clone, Debug, PartialEq)]
pub struct Adopted {
    /// The dataset's folder.
    pub folder: PathBuf,
    /// The dataset's contents.
    pub manifest: Manifest,
    /// Warnings, one sentence each.
    pub warnings: Vec<String>,
}

impl Adoption {
    /// Finds the token files in `folder`: those that match the options' patterns, or else the `.bin` files whose
    /// names contain `train` or `val`.
    ///
    /// # Errors
    /// Fails if the split of a file is unclear or there is no training file, if the tokenizer cannot be used or has
    /// no alphabet, or if the manifest cannot be written or would replace an existing one.
    pub fn find(folder: &Path, options: &AdoptOptions) -> Result<Self, DataError> {
        let files = TokenFiles::find(folder, options.train.as_deref(), options.val.as_deref())?;
        let tokenizer = match (&options.tokenizer, &options.alphabet) {
            (TokenizerChoice::Named(TokenizerKind::Char), Some(path)) => {
                Tokenizer::char_from_alphabet(alphabet(path)?)?
            }
            (choice, _) => Tokenizer::from_choice(choice)?,
        };
        // Checked now, before all files are read.
        let location =
            DatasetLocation::begin(folder, options.out.as_deref(), options.force, &tokenizer)?;
        Ok(Self {
            folder: folder.to_owned(),
            files,
            location,
            tokenizer,
            command: options.command.clone(),
        })
    }

    /// The total size of the files in bytes, for a progress bar.
    pub fn bytes(&self) -> u64 {
        self.files.bytes
    }

    /// Reads the files and writes the manifest. `progress` receives the number of bytes read since the last call.
    ///
    /// # Errors
    /// Fails if a file is damaged or has an id outside the vocabulary, or if the manifest cannot be written.
    pub fn run(self, progress: &dyn Fn(u64)) -> Result<Adopted, DataError> {
        let vocabulary = Vocabulary::of(&self.tokenizer);
        let mut job = Job {
            folder: &self.folder,
            tokenizer: &self.tokenizer,
            vocabulary: &vocabulary,
            progress,
            largest: None,
            warnings: Vec::new(),
            blocks: DatasetBlocks::default(),
        };
        let splits = Splits {
            train: job.split(Split::Train, &self.files.train)?,
            val: job.split(Split::Val, &self.files.val)?,
        };
        job.check_alphabet();
        let (warnings, blocks) = (job.warnings, job.blocks);
        let mut manifest = Manifest::new(self.command, self.tokenizer.spec(), splits);
        manifest.adopted = self.location.is_in_place();
        let names = self.files.train.iter().chain(&self.files.val);
        let folder =
            self.location
                .finish(&self.folder, names, &self.tokenizer, &manifest, &blocks)?;
        Ok(Adopted {
            folder,
            manifest,
            warnings,
        })
    }
}

/// State while the files are read.
struct Job<'a> {
    folder: &'a Path,
    tokenizer: &'a Tokenizer,
    vocabulary: &'a Vocabulary,
    progress: &'a dyn Fn(u64),
    largest: Option<u32>,
    warnings: Vec<String>,
    /// The block hashes of the files read so far.
    blocks: DatasetBlocks,
}

impl Job<'_> {
    fn split(&mut self, split: Split, names: &[String]) -> Result<SplitManifest, DataError> {
        let mut manifest = SplitManifest::default();
        let (mut previous, mut bytes, mut ends_of_text) = (None, Some(0), 0);
        for name in names {
            let path = self.folder.join(name);
            let layout = detect_layout(&path)?;
            let found = self
                .vocabulary
                .survey(&path, layout, &mut previous, self.progress)?;
            self.check_ids(&path, &found)?;
            self.largest = self.largest.max(found.largest);
            ends_of_text += found.ends_of_text;
            bytes = bytes.zip(found.bytes).map(|(a, b)| a + b);
            let documents = match self.vocabulary.end_of_text {
                Some(_) => found.ends_of_text,
                // Without an end-of-text token, the whole split is one document.
                None => u64::from(manifest.tokens == 0 && found.tokens > 0),
            };
            self.blocks.add(name, found.hashes.blocks);
            manifest.tokens += found.tokens;
            manifest.documents += documents;
            manifest.shards.push(ShardEntry {
                file: name.clone(),
                tokens: found.tokens,
                documents,
                blake3: found.hashes.blake3,
                layout,
                mask: None,
            });
        }
        manifest.bytes = bytes.unwrap_or(0);
        if self.vocabulary.end_of_text.is_some() && ends_of_text == 0 && manifest.tokens > 0 {
            self.warnings.push(format!(
                "no end-of-text token in the {split} split: one long text, or another tokenizer's"
            ));
        }
        Ok(manifest)
    }

    fn check_ids(&self, path: &Path, found: &Survey) -> Result<(), DataError> {
        let Some(outside) = found.outside else {
            return Ok(());
        };
        Err(DataError::OtherVocabulary {
            path: path.to_owned(),
            count: outside.count,
            position: outside.position,
            id: outside.id,
            kind: self.tokenizer.kind(),
            vocab_size: self.vocabulary.size,
        })
    }

    /// Warns if the files never use the last ids. A nanoGPT character vocabulary is built from the dataset's text, so
    /// the files should use all of it.
    fn check_alphabet(&mut self) {
        let size = self.vocabulary.size;
        let used = self.largest.map_or(0, |id| id as usize + 1);
        if self.tokenizer.kind() == TokenizerKind::Char && used < size {
            self.warnings.push(format!(
                "the alphabet has {size} characters, but the files use the first {used} only: is it that of their text?"
            ));
        }
    }
}

/// The magic numbers of llm.c are dates in 2024. To be mistaken for one, a headerless file would have to begin with
/// an id of at least 55,013, which GPT-2 does not have, followed by id 308.
const HEADER_MAGICS: std::ops::RangeInclusive<i32> = 20_240_101..=20_241_231;

/// Detects the layout from the file's first four bytes.
fn detect_layout(path: &Path) -> Result<ShardLayout, DataError> {
    let mut head = Vec::new();
    let file = File::open(path).map_err(DataError::io("read", path))?;
    file.take(HEADER_BYTES)
        .read_to_end(&mut head)
        .map_err(DataError::io("read", path))?;
    let Some(first) = head.first_chunk() else {
        return Ok(ShardLayout::Headerless);
    };
    match HEADER_MAGICS.contains(&i32::from_le_bytes(*first)) {
        true => Ok(ShardLayout::LlmC),
        false => Ok(ShardLayout::Headerless),
    }
}

/// The distinct characters of the text file `path`.
fn alphabet(path: &Path) -> Result<BTreeSet<char>, DataError> {
    let file = File::open(path).map_err(DataError::io("read", path))?;
    let mut file = BufReader::new(file);
    let (mut chars, mut line, mut offset) = (BTreeSet::new(), Vec::new(), 0);
    // A line break never splits a character, so each line is valid UTF-8 if the file is.
    while 0 < file
        .read_until(b'\n', &mut line)
        .map_err(DataError::io("read", path))?
    {
        let text = str::from_utf8(&line).map_err(|error| DataError::InvalidUtf8 {
            path: path.to_owned(),
            offset: offset + error.valid_up_to() as u64,
        })?;
        chars.extend(text.chars());
        offset += line.len() as u64;
        line.clear();
    }
    match chars.is_empty() {
        true => Err(DataError::EmptyFile {
            path: path.to_owned(),
        }),
        false => Ok(chars),
    }
}
