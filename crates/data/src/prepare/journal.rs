//! The plan and the progress of an unfinished dataset, with which it can be resumed.
//!
//! `plan.json` is written once. `progress.json` is replaced atomically, again and again. The shards are synced before
//! the progress that describes them.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};

use emberlm_system::read;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::corpus::Corpus;
use super::tally::Tally;
use super::{PrepareOptions, SplitRule};
use crate::staging::{PROGRESS_FILE, sync_folder};
use crate::writer::SplitState;
use crate::{DataError, Format, Input, LeftOut, Split};

/// The maximum time between two updates of the progress.
const MAX_INTERVAL: Duration = Duration::from_secs(3);

const PLAN_FILE: &str = "plan.json";

/// The inputs and options that determine a dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    /// The command line that began the dataset, for the manifest.
    pub(super) command: String,
    /// The settings that determine the dataset's bytes, as name and value.
    settings: Vec<(String, String)>,
    /// The inputs in order.
    inputs: Vec<PlannedInput>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlannedInput {
    name: String,
    bytes: u64,
    /// The modification time, in seconds since 1970.
    modified: String,
}

/// The saved progress of a dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedProgress {
    /// The counts so far, including the chunks already processed.
    pub(super) tally: Tally,
    /// The records that could not be encoded.
    pub(super) refused: LeftOut,
    /// The state of the training split's shards.
    pub(super) train: SplitState,
    /// The state of the validation split's shards.
    pub(super) val: SplitState,
}

impl Plan {
    /// The plan of a dataset. `tokenizer` and `encoding` identify the tokenizer and the chat template by name and
    /// hash.
    pub(super) fn new(
        corpus: &Corpus,
        options: &PrepareOptions,
        tokenizer: String,
        encoding: String,
    ) -> Result<Self, DataError> {
        let format = options.input.format;
        let settings = [
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("tokenizer", tokenizer),
            ("encoding", encoding),
            ("format", format.map_or("by name", Format::name).to_owned()),
            ("field", options.input.field.clone()),
            ("split", corpus.rule.to_string()),
            (
                "val_fraction",
                match corpus.rule {
                    SplitRule::File => "by file".to_owned(),
                    _ => options.val_fraction.to_string(),
                },
            ),
            ("dedup", options.dedup.to_string()),
            ("shard_tokens", options.shard_tokens.to_string()),
        ];
        let inputs = corpus.inputs.iter().enumerate();
        let inputs = inputs.map(|(number, input)| plan_input(input, corpus.split_of(number)));
        Ok(Self {
            command: options.command.clone(),
            settings: settings
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
            inputs: inputs.collect::<Result<_, _>>()?,
        })
    }

    /// Reads the plan of the unfinished dataset in `folder`.
    pub(super) fn read(folder: &Path) -> Result<Self, DataError> {
        read(&folder.join(PLAN_FILE))
    }

    /// Writes the plan into `folder`.
    pub(super) fn write(&self, folder: &Path) -> Result<(), DataError> {
        write_whole(folder, PLAN_FILE, self)
    }

    /// Compares the plan with that of the current command. Returns a description of the first difference as an error.
    pub(super) fn compare(&self, now: &Self) -> Result<(), String> {
        for ((name, was), (_, is)) in self.settings.iter().zip(&now.settings) {
            if was != is {
                return Err(format!("`{name}` was {was} and now is {is}"));
            }
        }
        for (was, is) in self.inputs.iter().zip(&now.inputs) {
            if was.name != is.name {
                return Err(format!("the input {} is now {}", was.name, is.name));
            }
            if was != is {
                let shown = |input: &PlannedInput| {
                    format!("{} bytes written to at {}", input.bytes, input.modified)
                };
                let (name, was, is) = (&is.name, shown(was), shown(is));
                return Err(format!("{name} had {was} and now has {is}"));
            }
        }
        let (was, is) = (self.inputs.len(), now.inputs.len());
        match was == is && self.settings.len() == now.settings.len() {
            true => Ok(()),
            false => Err(format!("there were {was} inputs and now are {is}")),
        }
    }
}

impl Plan {
    /// Describes the first difference of another rank's plan from this one of rank 0. `None` if both give the same dataset.
    pub(super) fn difference_of_rank(&self, other: &Self) -> Option<String> {
        for ((name, own), (_, others)) in self.settings.iter().zip(&other.settings) {
            if own != others {
                return Some(format!("`{name}` is {others}, and {own} on rank 0"));
            }
        }
        for (own, others) in self.inputs.iter().zip(&other.inputs) {
            if own.name != others.name {
                return Some(format!("it reads {}, and rank 0 {}", others.name, own.name));
            }
            if own.bytes != others.bytes {
                let (name, own, others) = (&own.name, own.bytes, others.bytes);
                return Some(format!("{name} has {others} bytes, and {own} on rank 0"));
            }
        }
        let (own, others) = (self.inputs.len(), other.inputs.len());
        (own != others).then(|| format!("it has {others} inputs, and rank 0 has {own}"))
    }
}

impl SavedProgress {
    /// Reads the saved progress of the unfinished dataset in `folder`.
    pub(super) fn read(folder: &Path) -> Result<Self, DataError> {
        read(&folder.join(PROGRESS_FILE))
    }
}

/// Saves the progress from time to time.
pub(super) struct Journal<'a> {
    folder: &'a Path,
    interval: u64,
    bytes: u64,
    last: Instant,
}

impl<'a> Journal<'a> {
    /// A journal in `folder` that is due after every `interval` bytes of text.
    pub(super) fn new(folder: &'a Path, interval: u64) -> Self {
        Self {
            folder,
            interval,
            bytes: 0,
            last: Instant::now(),
        }
    }

    /// Counts `bytes` bytes of text. Returns true if the progress should be saved.
    pub(super) fn is_due(&mut self, bytes: u64) -> bool {
        self.bytes += bytes;
        self.bytes >= self.interval || self.last.elapsed() >= MAX_INTERVAL
    }

    /// Saves the progress.
    pub(super) fn write(&mut self, saved: &SavedProgress) -> Result<(), DataError> {
        write_whole(self.folder, PROGRESS_FILE, saved)?;
        self.bytes = 0;
        self.last = Instant::now();
        Ok(())
    }
}

fn plan_input(input: &Input, split: Option<Split>) -> Result<PlannedInput, DataError> {
    let modified = || fs::metadata(&input.path)?.modified();
    let modified = modified().map_err(DataError::io("read", &input.name))?;
    // Times before 1970 come from a clock that was never set.
    let modified = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    let name = input.name.display();
    Ok(PlannedInput {
        name: match split {
            Some(split) => format!("{name} ({split})"),
            None => name.to_string(),
        },
        bytes: input.bytes,
        modified: format!("{}.{:09}", modified.as_secs(), modified.subsec_nanos()),
    })
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, DataError> {
    let text =
        read::read_text(path, read::DESCRIPTION_LIMIT).map_err(DataError::io("read", path))?;
    serde_json::from_str(&text).map_err(|error| DataError::Manifest {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

/// Writes a file atomically and syncs it to disk.
fn write_whole(folder: &Path, name: &str, value: &impl Serialize) -> Result<(), DataError> {
    let (path, part) = (folder.join(name), folder.join(format!("{name}.part")));
    let write = || {
        let mut file = File::create(&part)?;
        file.write_all(&serde_json::to_vec_pretty(value)?)?;
        file.sync_all()?;
        fs::rename(&part, &path)
    };
    write().map_err(DataError::io("write", &path))?;
    sync_folder(folder)
}
