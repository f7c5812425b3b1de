//! `dataset.json`: the description of a dataset.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::{Component, Path};

use emberlm_system::read;
use emberlm_tokenizer::TokenizerSpec;
use emberlm_tokenizer::chat::ChatTemplateSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{DataError, MANIFEST_FILE, ShardLayout, Split};

/// The temporary file name used while writing.
const MANIFEST_ASIDE: &str = ".dataset.json.partial";

/// The only supported format version.
const FORMAT: u32 = 1;

/// The value of `kind`, which identifies the file as this program's.
const MAKER: &str = "emberlm dataset";

/// The description of a dataset. It is written last and read first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Always `emberlm dataset`.
    kind: String,
    /// The format version.
    format: u32,
    /// The command line that created the dataset.
    pub command: String,
    /// The tokenizer whose ids the shards hold.
    pub tokenizer: TokenizerSpec,
    /// The chat template used to render the documents, if they are conversations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_template: Option<ChatTemplateSpec>,
    /// The two splits.
    pub splits: Splits,
    /// True if the shards existed before the dataset. They must not be removed with it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub adopted: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// The splits of a dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Splits {
    /// The training split.
    pub train: SplitManifest,
    /// The validation split. It has no tokens if all documents are for training.
    pub val: SplitManifest,
}

/// The description of one split.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitManifest {
    /// The number of tokens, including end-of-text tokens.
    pub tokens: u64,
    /// The number of documents that begin in this split. A document cut between the splits counts in both.
    pub documents: u64,
    /// The number of UTF-8 bytes of the tokenized text, used to compute bits per byte. 0 if unknown.
    pub bytes: u64,
    /// A known lower bound of the mean loss, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<Floor>,
    /// The shards in order.
    pub shards: Vec<ShardEntry>,
}

/// A known lower bound of the mean loss on a split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Floor {
    /// The bound, in nats per token.
    pub nats_per_token: f64,
    /// An explanation of the bound for the reader.
    pub source: String,
}

/// The description of one shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShardEntry {
    /// The file name in the dataset directory.
    pub file: String,
    /// The number of tokens.
    pub tokens: u64,
    /// The number of documents that begin in the shard.
    pub documents: u64,
    /// BLAKE3 of the whole file, in hexadecimal.
    pub blake3: String,
    /// The layout of the tokens in the file.
    #[serde(default, skip_serializing_if = "ShardLayout::is_llm_c")]
    pub layout: ShardLayout,
    /// The mask that selects targets. Without one, all tokens are targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<MaskEntry>,
}

/// A mask file, with one byte per token of the shard: the sum of 1 if the token is a target and, in masks that index
/// documents, 2 if a document begins with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MaskEntry {
    /// The file name in the dataset directory.
    pub file: String,
    /// The number of targets among the shard's tokens.
    pub learnt: u64,
    /// True if the mask marks the first token of each document. Otherwise, as in datasets of earlier versions, a
    /// document begins at each end-of-text token that is not a target.
    #[serde(default, skip_serializing_if = "is_false")]
    pub indexes_documents: bool,
    /// BLAKE3 of the whole file, in hexadecimal.
    pub blake3: String,
}

impl ShardEntry {
    /// The files of the shard: the tokens, then the mask if there is one.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let mask = self.mask.iter().map(|mask| mask.file.as_str());
        [self.file.as_str()].into_iter().chain(mask)
    }
}

impl Manifest {
    /// A manifest of the current format version.
    pub fn new(command: String, tokenizer: TokenizerSpec, splits: Splits) -> Self {
        Self {
            kind: MAKER.to_owned(),
            format: FORMAT,
            command,
            tokenizer,
            chat_template: None,
            splits,
            adopted: false,
        }
    }

    /// The description of `split`.
    pub fn split(&self, split: Split) -> &SplitManifest {
        match split {
            Split::Train => &self.splits.train,
            Split::Val => &self.splits.val,
        }
    }

    /// The token and mask files of all shards.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let shards = Split::ALL
            .into_iter()
            .flat_map(|split| &self.split(split).shards);
        shards.flat_map(ShardEntry::files)
    }

    /// Reads and validates the manifest of the dataset in `folder`.
    ///
    /// # Errors
    /// Fails if the file does not exist, has another format, has unknown or missing fields, or is inconsistent.
    pub fn read(folder: &Path) -> Result<Self, DataError> {
        let path = folder.join(MANIFEST_FILE);
        let invalid = |reason: String| DataError::Manifest {
            path: path.clone(),
            reason,
        };
        let text = read::read_text(&path, read::DESCRIPTION_LIMIT)
            .map_err(DataError::io("read the dataset's", &path))?;
        check_format(&text).map_err(invalid)?;
        let manifest: Self =
            serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        for split in Split::ALL {
            let check = manifest.split(split).check();
            check.map_err(|reason| invalid(format!("split `{split}`: {reason}")))?;
        }
        let mut seen = HashSet::new();
        if let Some(file) = manifest.files().find(|file| !seen.insert(*file)) {
            return Err(invalid(format!("`{file}` is listed twice")));
        }
        Ok(manifest)
    }

    /// Atomically writes the manifest into `folder` and syncs it to disk.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), DataError> {
        let (path, aside) = (folder.join(MANIFEST_FILE), folder.join(MANIFEST_ASIDE));
        write_aside(self, &path, &aside)
    }

    /// Checks that a manifest can be written into `folder`, before long work that would be lost otherwise.
    pub(crate) fn check_writable(folder: &Path) -> Result<(), DataError> {
        let aside = folder.join(MANIFEST_ASIDE);
        let check = || {
            fs::File::create(&aside)?;
            fs::remove_file(&aside)
        };
        check().map_err(DataError::io("write", &folder.join(MANIFEST_FILE)))
    }
}

impl SplitManifest {
    /// Returns true if some of the shards have a mask.
    pub fn is_masked(&self) -> bool {
        self.shards.iter().any(|shard| shard.mask.is_some())
    }

    /// Returns true if the masks index all documents.
    pub fn indexes_documents(&self) -> bool {
        let indexed = |shard: &ShardEntry| {
            let mask = shard.mask.as_ref();
            mask.is_some_and(|mask| mask.indexes_documents)
        };
        self.shards.iter().all(indexed)
    }

    /// The number of target tokens.
    pub fn learnt(&self) -> u64 {
        let learnt = |shard: &ShardEntry| match &shard.mask {
            Some(mask) => mask.learnt,
            None => shard.tokens,
        };
        self.shards.iter().map(learnt).sum()
    }

    fn check(&self) -> Result<(), String> {
        for file in self.shards.iter().flat_map(ShardEntry::files) {
            let mut parts = Path::new(file).components();
            // A path with directories could make the program read or delete files outside the dataset.
            if !matches!(
                (parts.next(), parts.next()),
                (Some(Component::Normal(_)), None)
            ) {
                return Err(format!("shard `{file}` is not a plain file name"));
            }
        }
        for shard in &self.shards {
            if let Some(mask) = shard
                .mask
                .as_ref()
                .filter(|mask| mask.learnt > shard.tokens)
            {
                let (file, learnt, tokens) = (&mask.file, mask.learnt, shard.tokens);
                return Err(format!(
                    "mask `{file}`: `learnt` is {learnt}, of {tokens} tokens"
                ));
            }
        }
        let sum = |count: fn(&ShardEntry) -> u64| {
            let mut counts = self.shards.iter().map(count);
            counts.try_fold(0, u64::checked_add)
        };
        if sum(|shard| shard.tokens) != Some(self.tokens) {
            return Err(format!("`tokens` is {}, not its shards' sum", self.tokens));
        }
        if sum(|shard| shard.documents) != Some(self.documents) {
            return Err(format!(
                "`documents` is {}, not its shards' sum",
                self.documents
            ));
        }
        Ok(())
    }
}

/// Writes `value` as JSON to `aside`, syncs the file and renames it to `path`.
pub(crate) fn write_aside(
    value: &impl Serialize,
    path: &Path,
    aside: &Path,
) -> Result<(), DataError> {
    let write = || {
        let mut file = fs::File::create(aside)?;
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(aside, path)
    };
    write().map_err(DataError::io("write", path))
}

/// Checks `kind` and `format` first, for a clearer error than that of an unknown field.
fn check_format(text: &str) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Head {
        kind: String,
        format: u32,
    }
    let head: Head = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if head.kind != MAKER {
        return Err(format!("`kind` is {:?}, not {MAKER:?}", head.kind));
    }
    if head.format != FORMAT {
        let found = head.format;
        return Err(format!(
            "`format` is {found}, but this program reads format {FORMAT} only"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use emberlm_tokenizer::{Tokenizer, TokenizerKind};
    use serde_json::{Value, json};

    use super::*;
    use crate::tables::check_table;

    fn manifest() -> Manifest {
        let shard = |file: &str, tokens| ShardEntry {
            file: file.into(),
            tokens,
            documents: 1,
            blake3: "00".into(),
            layout: ShardLayout::LlmC,
            mask: None,
        };
        let split = |file: &str, floor| SplitManifest {
            tokens: 7,
            documents: 1,
            bytes: 6,
            floor,
            shards: vec![shard(file, 7)],
        };
        let floor = Floor {
            nats_per_token: 0.25,
            source: "counted".into(),
        };
        let splits = Splits {
            train: split("train_00000.bin", None),
            val: split("val_00000.bin", Some(floor)),
        };
        let tokenizer = Tokenizer::builtin(TokenizerKind::Byte).unwrap();
        Manifest::new("emberlm prepare x".into(), tokenizer.spec(), splits)
    }

    fn read_edited(edit: impl FnOnce(&mut Value)) -> Result<Manifest, DataError> {
        let folder = tempfile::tempdir().unwrap();
        let mut value = serde_json::to_value(manifest()).unwrap();
        edit(&mut value);
        fs::write(folder.path().join(MANIFEST_FILE), value.to_string()).unwrap();
        Manifest::read(folder.path())
    }

    #[test]
    fn manifest_round_trips() {
        let folder = tempfile::tempdir().unwrap();
        manifest().write(folder.path()).unwrap();
        assert_eq!(Manifest::read(folder.path()).unwrap(), manifest());
    }

    #[test]
    fn unusable_manifests_are_errors_with_the_field() {
        check_table("records/manifest", |row| {
            let (path, value) = row.split_once(' ').unwrap();
            let edited = read_edited(|manifest| {
                let (place, name) = path.rsplit_once('/').unwrap();
                let value: Value = serde_json::from_str(value).unwrap();
                manifest.pointer_mut(place).unwrap()[name] = value;
            });
            edited.unwrap_err().to_string()
        });
        let error = read_edited(|manifest| *manifest = json!([1])).unwrap_err();
        assert!(error.to_string().contains(MANIFEST_FILE), "{error}");
    }
}
