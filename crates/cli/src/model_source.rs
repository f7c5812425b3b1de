//! What commands accept as MODEL: a run's directory, for its newest whole checkpoint, or a checkpoint's.

use std::fs;
use std::path::Path;

use emberlm_data::MANIFEST_FILE;
use emberlm_model::families;
use emberlm_tokenizer::Tokenizer;
use emberlm_trainer::checkpoint::Checkpoint;

use crate::error::CliError;

/// Opens the checkpoint that `path` names; its files are those that were written.
pub fn open(path: &Path) -> Result<Checkpoint, CliError> {
    let is_directory = fs::metadata(path)
        .map_err(|error| missing(path, error))?
        .is_dir();
    let holds = |name: &str| path.join(name).exists();
    if !is_directory {
        let message = format!("{} is a file, not a model's directory", path.display());
        Err(CliError::new(message).hint(EXPECTED))
    } else if holds("model.json") {
        Ok(Checkpoint::open(path)?)
    } else if holds("checkpoints") {
        let newest = Checkpoint::newest(path)?;
        newest.ok_or_else(|| no_checkpoint(path))
    } else {
        Err(foreign(path, holds))
    }
}

/// The tokenizer that a checkpoint was trained with, if it is known.
pub fn tokenizer(checkpoint: &Checkpoint) -> Result<Option<Tokenizer>, CliError> {
    let spec = checkpoint.description.tokenizer.as_ref();
    Ok(spec.map(Tokenizer::from_spec).transpose()?)
}

/// The tokenizer of the model that was given as `path`.
///
/// # Errors
/// It has none.
pub fn needed<'a>(
    tokenizer: Option<&'a Tokenizer>,
    path: &Path,
) -> Result<&'a Tokenizer, CliError> {
    tokenizer.ok_or_else(|| {
        let message = format!(
            "{} has no tokenizer, so it cannot read text",
            path.display()
        );
        CliError::new(message).hint("give the prompt as token ids: --tokens 1,2,3")
    })
}

/// What MODEL is.
const EXPECTED: &str =
    "give a run's directory (the --out of `emberlm train`) or one of its checkpoints/step-…";

fn missing(path: &Path, error: std::io::Error) -> CliError {
    if error.kind() != std::io::ErrorKind::NotFound {
        return CliError::io("read", path)(error);
    }
    let this = CliError::new(format!("no such model: {}", path.display()));
    match path.to_str().and_then(families::preset) {
        Some(preset) => {
            let name = preset.name;
            this.hint(format!(
                "`{name}` is a preset, which has no weights yet: emberlm train --preset {name} --data DATASET --out RUN"
            ))
        }
        None => this.hint(EXPECTED),
    }
}

fn no_checkpoint(path: &Path) -> CliError {
    CliError::new(format!("{} has no checkpoint yet", path.display()))
        .hint("a run writes them as it goes and when it ends, Ctrl-C included")
}

/// A directory that is something else.
fn foreign(path: &Path, holds: impl Fn(&str) -> bool) -> CliError {
    let path = path.display();
    if holds("config.json") {
        CliError::new(format!(
            "{path} is a Hugging Face model, which this version does not read yet"
        ))
        .hint(format!("for now {EXPECTED}"))
    } else if holds(MANIFEST_FILE) {
        CliError::new(format!("{path} is a dataset, not a model")).hint(format!(
            "train one on it: emberlm train --data {path} --out RUN"
        ))
    } else {
        CliError::new(format!("{path} holds no model")).hint(EXPECTED)
    }
}
