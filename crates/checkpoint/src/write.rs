//! Writes checkpoints atomically: files are written to a temporary directory and synced, then the directory is renamed.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use emberlm_kernels::Backend;
use emberlm_model::{Transformer, weights};
use emberlm_tokenizer::{TOKENIZER_FILE, Tokenizer};
use serde::Serialize;

use crate::checkpoint::{DESCRIPTION, Entry, FOLDER, MANIFEST, MODEL, Manifest, folder_name};
use crate::description::Description;
use crate::error::CheckpointError;

/// A checkpoint that is being written: a hidden directory, which is removed on drop unless it was published.
#[derive(Debug)]
pub struct PartialCheckpoint {
    /// The checkpoints of the run.
    folder: PathBuf,
    step: usize,
    path: PathBuf,
}

impl PartialCheckpoint {
    /// Creates the empty directory of the checkpoint of `step` of a run. One that an interrupted process left is replaced.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn create(run: &Path, step: usize) -> Result<Self, CheckpointError> {
        let path = Self::path_of(run, step);
        remove(&path)?;
        fs::create_dir_all(&path).map_err(CheckpointError::file("create", &path))?;
        Ok(Self {
            folder: run.join(FOLDER),
            step,
            path,
        })
    }

    /// The directory of the checkpoint of `step` while it is being written.
    pub fn path_of(run: &Path, step: usize) -> PathBuf {
        let name = folder_name(step);
        run.join(FOLDER).join(format!(".{name}.partial"))
    }

    /// The directory to write files into.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the directory to that of the checkpoint and returns the latter. An existing checkpoint of the same step is
    /// replaced. All files must have been synced to disk.
    ///
    /// # Errors
    /// The directory cannot be renamed.
    pub fn publish(self) -> Result<PathBuf, CheckpointError> {
        let name = folder_name(self.step);
        let target = self.folder.join(&name);
        let replaced = self.folder.join(format!(".{name}.replaced"));
        let rename = |from: &Path, to: &Path| {
            fs::rename(from, to).map_err(CheckpointError::file("rename", from))
        };
        remove(&replaced)?;
        // A link whose target is gone, too.
        if fs::symlink_metadata(&target).is_ok() {
            rename(&target, &replaced)?;
        }
        rename(&self.path, &target)?;
        sync(&self.folder)?;
        remove(&replaced)?;
        Ok(target)
    }
}

impl Drop for PartialCheckpoint {
    fn drop(&mut self) {
        // After it was published, there is no such directory. An error matters less than the one that ended the writing.
        let _ = fs::remove_dir_all(&self.path);
    }
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
    folder: impl AsRef<Path>,
    decoder: &Transformer<B>,
    description: &Description,
    tokenizer: Option<&Tokenizer>,
) -> Result<(), CheckpointError> {
    write_model(folder.as_ref(), decoder, description, tokenizer, &[])
}

/// Writes the model's files and then the manifest, which also lists the existing files `others`.
///
/// # Errors
/// A file cannot be written.
pub fn write_model<B: Backend>(
    folder: &Path,
    decoder: &Transformer<B>,
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
    decoder: &Transformer<B>,
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
