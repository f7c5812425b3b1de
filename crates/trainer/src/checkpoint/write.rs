//! Writing a checkpoint: beside its place, synced, then renamed.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use emberlm_data::{TOKENIZER_FILE, Tokenizer};
use emberlm_kernels::Backend;
use emberlm_model::{Decoder, weights};
use serde::Serialize;

use super::{
    DESCRIPTION, Description, Entry, FOLDER, MANIFEST, MODEL, Manifest, OPTIMIZER, STATE, State,
    TRAINING, folder_name,
};
use crate::error::TrainError;
use crate::optimizer::Snapshot;

/// What a run's weights are, the same in all its checkpoints.
#[derive(Debug)]
pub struct About {
    /// The model and its tokenizer.
    pub description: Description,
    /// The tokenizer that the description names, for its own file, if it has one.
    pub tokenizer: Option<Tokenizer>,
}

/// What goes into a checkpoint: handles, so that it can be written while training goes on.
#[derive(Clone)]
pub struct Contents<B: Backend> {
    /// The weights that the model is used with.
    pub decoder: Decoder<B>,
    /// The weights that training goes on from, where they are others.
    pub training: Option<Decoder<B>>,
    /// What the optimizer carries.
    pub optimizer: Snapshot<B>,
    /// What the weights are.
    pub about: Arc<About>,
    /// Where the run stands.
    pub state: State,
}

/// Writes a checkpoint into a run. One of the same step is replaced.
///
/// # Errors
/// A file cannot be written; nothing of it is left then.
pub fn write<B: Backend>(run: &Path, contents: &Contents<B>) -> Result<PathBuf, TrainError> {
    let folder = run.join(FOLDER);
    let name = folder_name(contents.state.step);
    let place = folder.join(&name);
    let [aside, replaced] =
        ["partial", "replaced"].map(|end| folder.join(format!(".{name}.{end}")));
    remove(&aside)?;
    remove(&replaced)?;
    fs::create_dir_all(&aside).map_err(TrainError::file("create", &aside))?;
    let rename =
        |from: &Path, to: &Path| fs::rename(from, to).map_err(TrainError::file("rename", from));
    let written = fill(&aside, contents).and_then(|()| {
        if place.exists() {
            rename(&place, &replaced)?;
        }
        rename(&aside, &place)?;
        sync(&folder)?;
        remove(&replaced)
    });
    if written.is_err() {
        // The first error is what the user needs to hear of.
        let _ = fs::remove_dir_all(&aside);
    }
    written.map(|()| place)
}

/// Removes a folder with what is in it, if it is there.
pub(super) fn remove(folder: &Path) -> Result<(), TrainError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(TrainError::file("remove", folder)(error))
        }
        _ => Ok(()),
    }
}

fn fill<B: Backend>(folder: &Path, contents: &Contents<B>) -> Result<(), TrainError> {
    let mut others = vec![OPTIMIZER, STATE];
    if let Some(training) = &contents.training {
        save_weights(folder, TRAINING, training)?;
        others.push(TRAINING);
    }
    let moments = contents.optimizer.tensors();
    weights::save_own(&moments, metadata(), &folder.join(OPTIMIZER))?;
    write_json(&folder.join(STATE), &contents.state)?;
    let About {
        description,
        tokenizer,
    } = contents.about.as_ref();
    write_model(
        folder,
        &contents.decoder,
        description,
        tokenizer.as_ref(),
        &others,
    )
}

/// Writes a model that has not been trained into an existing directory.
///
/// # Errors
/// A file cannot be written.
pub fn write_untrained<B: Backend>(
    folder: &Path,
    decoder: &Decoder<B>,
    description: &Description,
    tokenizer: Option<&Tokenizer>,
) -> Result<(), TrainError> {
    write_model(folder, decoder, description, tokenizer, &[])
}

/// Writes the model and, last, the manifest of its files and `others`.
fn write_model<B: Backend>(
    folder: &Path,
    decoder: &Decoder<B>,
    description: &Description,
    tokenizer: Option<&Tokenizer>,
    others: &[&'static str],
) -> Result<(), TrainError> {
    save_weights(folder, MODEL, decoder)?;
    write_json(&folder.join(DESCRIPTION), description)?;
    let mut names = vec![MODEL, DESCRIPTION];
    names.extend(others);
    if let Some(tokenizer) = tokenizer
        && tokenizer.save(folder)?
    {
        names.push(TOKENIZER_FILE);
    }
    let mut manifest = Manifest::new();
    for name in names {
        let path = folder.join(name);
        sync(&path)?;
        manifest.insert(name.to_owned(), Entry::of(&path)?);
    }
    let path = folder.join(MANIFEST);
    write_json(&path, &manifest)?;
    sync(&path)?;
    sync(folder)
}

fn save_weights<B: Backend>(
    folder: &Path,
    name: &str,
    decoder: &Decoder<B>,
) -> Result<(), TrainError> {
    decoder.check_not_packed()?;
    let tensors = weights::device_tensors(decoder);
    Ok(weights::save_own(&tensors, metadata(), &folder.join(name))?)
}

fn metadata() -> HashMap<String, String> {
    HashMap::from([("format".to_owned(), "emberlm".to_owned())])
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), TrainError> {
    let text = serde_json::to_string_pretty(value).map_err(std::io::Error::from);
    text.and_then(|text| fs::write(path, text + "\n"))
        .map_err(TrainError::file("write", path))
}

fn sync(path: &Path) -> Result<(), TrainError> {
    let file = File::open(path).map_err(TrainError::file("open", path))?;
    file.sync_all().map_err(TrainError::file("sync", path))
}
