//! The runs of a sweep with their names, configurations and command lines.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use emberlm_model::TransformerConfig;
use emberlm_trainer::folder::CONFIG_FILE;
use emberlm_trainer::run::resolve_model;
use emberlm_trainer::run_config::single_keys;
use emberlm_trainer::{DataConfig, RunConfig, TrainingData};
use toml::Value;

use super::file::{Settings, SweepFile};
use super::stopping::{EarlyStop, StopRule};
use crate::commands::train::{self, TrainArgs};
use crate::error::CliError;
use crate::opened_model::OpenedModel;
use crate::run_settings::{SEED, shown};

/// All runs of a sweep, validated.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The runs in file order.
    pub runs: Vec<PlannedRun>,
    /// The seed of the random search.
    pub random_seed: Option<u64>,
    /// The early-stopping rule.
    pub early_stopping: Option<StopRule>,
}

/// A planned run.
#[derive(Clone, Debug)]
pub struct PlannedRun {
    /// Folder name, composed of the settings that distinguish the run.
    pub name: String,
    /// Name of the configuration. Runs that differ only in the seed share it.
    pub configuration: String,
    /// The settings that distinguish the run.
    pub settings: Settings,
    /// The complete configuration. The dataset may still determine the vocabulary size.
    pub config: RunConfig,
    pub folder: PathBuf,
    /// True if the sweep has an early-stopping rule.
    stops_early: bool,
    arguments: Vec<OsString>,
}

impl Plan {
    /// Plans the runs of a file. Each run is validated as far as possible before it starts.
    ///
    /// # Errors
    /// Returns an error if a run is invalid or two runs have the same name.
    pub fn new(file: &SweepFile, out: &Path, backend: &[String]) -> Result<Self, CliError> {
        // Opened once: this reads all weights for their hash.
        let model = file.from.as_deref().map(OpenedModel::open);
        let model = model.transpose()?;
        let mut opened = Vec::new();
        let mut runs: Vec<PlannedRun> = Vec::new();
        for own in &file.runs {
            let name = name(own);
            let within = |error: CliError| error.within(&format!("run {name}"));
            let folder = out.join(&name);
            let arguments = arguments(file, own, &folder, backend);
            let args = TrainArgs::parse(&arguments).map_err(within)?;
            let config = train::configuration(&args, model.as_ref()).map_err(within)?;
            check(config.clone(), &mut opened).map_err(within)?;
            if runs.iter().any(|run| run.name == name) {
                return Err(CliError::usage(format!("two runs have the name {name}"))
                    .hint("the values of a grid and the entries of a list must be distinct"));
            }
            runs.push(PlannedRun {
                arguments,
                configuration: configuration(own),
                settings: own.clone(),
                name,
                config,
                folder,
                stops_early: file.early_stopping.is_some(),
            });
        }
        Ok(Self {
            runs,
            random_seed: file.random_seed,
            early_stopping: file.early_stopping,
        })
    }
}

impl PlannedRun {
    /// The decision that stopped the run early, if the sweep still has an early-stopping rule.
    pub fn stopped_early(&self) -> Option<EarlyStop> {
        EarlyStop::read(&self.folder).filter(|_| self.stops_early)
    }

    /// The program arguments that start or resume the run.
    pub fn arguments(&self, backend: &[String]) -> Vec<OsString> {
        // A run writes its configuration before anything else.
        if !self.folder.join(CONFIG_FILE).exists() {
            return self.arguments.clone();
        }
        let mut words: Vec<OsString> = vec!["train".into(), "--resume".into()];
        words.push(self.folder.clone().into());
        // `--restart` starts a run without a checkpoint from scratch: a sweep needs finished runs.
        words.extend(["--restart", "--renderer", "plain"].map(OsString::from));
        words.extend(backend.iter().map(OsString::from));
        words
    }
}

/// The program arguments that start a run of a file in `folder` with the settings `own`.
pub fn arguments(
    file: &SweepFile,
    own: &Settings,
    folder: &Path,
    backend: &[String],
) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["train".into()];
    let mut option = |name: &str, value: OsString| {
        words.push(name.into());
        words.push(value);
    };
    if let Some(preset) = &file.preset {
        option("--preset", preset.into());
    }
    if let Some(from) = &file.from {
        option("--from", from.into());
    }
    if let Some(config) = &file.config {
        option("--config", config.into());
    }
    if let Some(data) = &file.data {
        option("--data", data.into());
    }
    // Single keys: those of the run override the common ones, whichever of them are set as tables.
    for (key, value) in file.common.iter().chain(own) {
        for setting in single_keys(key, value.clone()) {
            option("--set", as_argument(&setting).into());
        }
    }
    option("--out", folder.into());
    option("--renderer", "plain".into());
    words.extend(backend.iter().map(OsString::from));
    words
}

fn as_argument((key, value): &(String, Value)) -> String {
    format!("{key}={value}")
}

/// Validates the parts of a configuration that can be checked before training.
fn check(
    mut config: RunConfig,
    opened: &mut Vec<(DataConfig, TrainingData)>,
) -> Result<(), CliError> {
    config.check()?;
    if !config.model.architecture.is_decoder() || config.reads_records() {
        // Other models, and records in place of a dataset, are checked when their run starts.
        return Ok(());
    }
    let model = if config.data.is_empty() {
        // The vocabulary of the tales is not computed yet. Any size serves to check the rest.
        let model = &mut config.model;
        model.vocab_size.get_or_insert(256);
        TransformerConfig::try_from(model.clone())?
    } else {
        let opened = match opened.iter().find(|(of, _)| *of == config.data) {
            Some((_, opened)) => opened,
            None => {
                let data = TrainingData::open(&config.data)?;
                opened.push((config.data.clone(), data));
                &opened[opened.len() - 1].1
            }
        };
        resolve_model(&mut config, opened.first())?
    };
    config.train.sequence_tokens(model.seq_len())?;
    Ok(())
}

/// Composes a run's name. It is valid on every file system and independent of the other runs.
fn name(own: &Settings) -> String {
    let parts: Vec<String> = own.iter().map(part).collect();
    shortened(&parts.join(","))
}

/// The name of a run's configuration, which excludes the seed.
fn configuration(own: &Settings) -> String {
    let others = own.iter().filter(|(key, _)| key != SEED).cloned();
    let name = name(&others.collect());
    match name.is_empty() {
        true => "all".to_owned(),
        false => name,
    }
}

fn part((key, value): &(String, Value)) -> String {
    let key = key.strip_prefix("train.").unwrap_or(key);
    let written = format!("{key}={}", shown(value));
    let safe = |c: char| c.is_ascii_alphanumeric() || "._+-=".contains(c);
    match written.chars().all(safe) {
        true => written,
        // The hash keeps different values distinct after replacing characters.
        false => format!(
            "{}-{:08x}",
            written.replace(|c| !safe(c), "-"),
            hash(&written)
        ),
    }
}

/// Maximum length of a name. File systems allow 255 bytes, terminals show fewer.
const LONGEST: usize = 120;

fn shortened(name: &str) -> String {
    match name.len() {
        ..=LONGEST => name.to_owned(),
        // The name is ASCII here, so any byte is a character boundary.
        _ => format!("{}-{:08x}", &name[..LONGEST - 9], hash(name)),
    }
}

/// FNV-1a, which is stable across versions.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(settings: &[(&str, Value)]) -> Settings {
        let one = |(key, value): &(&str, Value)| ((*key).to_owned(), value.clone());
        settings.iter().map(one).collect()
    }

    #[test]
    fn names_are_readable_and_safe_for_file_systems() {
        let seed = ("train.seed", Value::Integer(2));
        let rate = ("train.schedule.learning_rate", Value::Float(1e-3));
        let run = own(&[rate.clone(), seed.clone()]);
        assert_eq!(name(&run), "schedule.learning_rate=0.001,seed=2");
        assert_eq!(configuration(&run), "schedule.learning_rate=0.001");
        assert_eq!(configuration(&own(&[seed])), "all");
        let from = |path: &str| name(&own(&[("train.from", Value::String(path.into()))]));
        for path in ["../a", "..-a", "a b", "ä", "con:", "x\0y", ""] {
            let name = from(path);
            let safe = |c: char| c.is_ascii_alphanumeric() || "._+-=,".contains(c);
            assert!(
                name.starts_with("from=") && name.chars().all(safe),
                "{name}"
            );
        }
        assert_ne!(from("../a"), from("..-a"));
        assert!(from(&"long".repeat(100)).len() <= LONGEST);
        assert_ne!(from(&"long".repeat(100)), from(&"long".repeat(101)));
    }

    #[test]
    fn the_hash_matches_the_published_vectors() {
        // The 32-bit FNV-1a test vectors of http://www.isthe.com/chongo/tech/comp/fnv.
        assert_eq!(hash(""), 0x811c_9dc5);
        assert_eq!(hash("a"), 0xe40c_292c);
        assert_eq!(hash("foobar"), 0xbf9c_f968);
    }
}
