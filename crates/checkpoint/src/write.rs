//! Writes checkpoints atomically: files are written to a temporary directory and synced, then the directory is renamed.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use emberlm_kernels::Backend;
use emberlm_model::{Decoder, weights};
use emberlm_tokenizer::{TOKENIZER_FILE, Tokenizer};
use serde::Serialize;

use crate::checkpoint::{
    DESCRIPTION, Description, Entry, FOLDER, MANIFEST, MODEL, Manifest, folder_name,
};
use crate::error::CheckpointError;

/// Writes the checkpoint of `step` into a run and returns its directory. `fill` writes the files into the given
/// temporary directory. An existing checkpoint of the same step is replaced.
///
/// # Errors
/// A file cannot be written. The temporary directory is then removed.
pub fn write(
    run: &Path,
    step: usize,
    fill: impl FnOnce(&Path) -> Result<(), CheckpointError>,
) -> Result<PathBuf, CheckpointError> {
    let folder = run.join(FOLDER);
    let name = folder_name(step);
    let target = folder.join(&name);
    let [partial, replaced] =
        ["partial", "replaced"].map(|end| folder.join(format!(".{name}.{end}")));
    remove(&partial)?;
    remove(&replaced)?;
    fs::create_dir_all(&partial).map_err(CheckpointError::file("create", &partial))?;
    let rename = |from: &Path, to: &Path| {
        fs::rename(from, to).map_err(CheckpointError::file("rename", from))
    };
    let written = fill(&partial).and_then(|()| {
        if target.exists() {
            rename(&target, &replaced)?;
        }
        rename(&partial, &target)?;
        sync(&folder)?;
        remove(&replaced)
    });
    if written.is_err() {
        // Report the original error instead of one from the clean-up.
        let _ = fs::remove_dir_all(&partial);
    }
    written.map(|()| target)
}

/// Removes a directory and its contents, if it exists.
pub(crate) fn remove(folder: &Path) -> Result<(), CheckpointError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(CheckpointError::file("remove", folder)(error))
        }
        _ => Ok(()),
    }
}

/// Writes an untrained model into an existing directory.
///
/// # Errors
/// A file cannot be written.
pub fn write_untrained<B: Backend>(
    folder: &Path,
    decoder: &Decoder<B>,
    description: &Description,
    tokenizer: Option<&Tokenizer>,
) -> Result<(), CheckpointError> {
    write_model(folder, decoder, description, tokenizer, &[])
}

/// Writes the model's files and then the manifest, which also lists the existing files `others`.
///
/// # Errors
/// A file cannot be written.
pub fn write_model<B: Backend>(
    folder: &Path,
    decoder: &Decoder<B>,
    description: &Description,
    tokenizer: Option<&Tokenizer>,
    others: &[&'static str],
) -> Result<(), CheckpointError> {
    save_weights(folder, MODEL, decoder)?;
    write_json(&folder.join(DESCRIPTION), description)?;
    let mut names = vec![MODEL, DESCRIPTION];
    names.extend(others);
    if let Some(tokenizer) = tokenizer
        && tokenizer.save(folder)?
    {
        names.push(TOKENIZER_FILE);
    }
    write_manifest(folder, &names)
}

/// Writes the manifest of a checkpoint's files, and syncs them to disk.
///
/// # Errors
/// A file cannot be read or written.
pub fn write_manifest(folder: &Path, names: &[&str]) -> Result<(), CheckpointError> {
    let mut manifest = Manifest::new();
    for &name in names {
        let path = folder.join(name);
        sync(&path)?;
        manifest.insert(name.to_owned(), Entry::of(&path)?);
    }
    let path = folder.join(MANIFEST);
    write_json(&path, &manifest)?;
    sync(&path)?;
    sync(folder)
}

/// Writes a decoder's weights to `folder/name`; of a decoder with an adapter, only those
/// that are trained with it. Tensors are named by
/// parameter paths.
///
/// # Errors
/// The file cannot be written, or the weights are packed.
pub fn save_weights<B: Backend>(
    folder: &Path,
    name: &str,
    decoder: &Decoder<B>,
) -> Result<(), CheckpointError> {
    let mut tensors = weights::device_tensors(decoder);
    match decoder.has_adapter() {
        true => tensors.retain(|(path, _)| decoder.is_saved_with_adapter(path)),
        false => decoder.check_not_packed()?,
    }
    Ok(weights::save_own(&tensors, metadata(), &folder.join(name))?)
}

/// Returns the metadata of the safetensors files in checkpoints.
pub fn metadata() -> HashMap<String, String> {
    HashMap::from([("format".to_owned(), "emberlm".to_owned())])
}

/// Writes a value as indented JSON.
///
/// # Errors
/// The file cannot be written.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), CheckpointError> {
    let text = serde_json::to_string_pretty(value).map_err(std::io::Error::from);
    text.and_then(|text| fs::write(path, text + "\n"))
        .map_err(CheckpointError::file("write", path))
}

fn sync(path: &Path) -> Result<(), CheckpointError> {
    let file = File::open(path).map_err(CheckpointError::file("open", path))?;
    file.sync_all().map_err(CheckpointError::file("sync", path))
}
