//! The cache of the Hub on disk, in the layout of the Python package `huggingface_hub`.
//!
//! ```text
//! models--ORG--NAME/blobs/HASH                  contents, named by their hash
//! models--ORG--NAME/snapshots/COMMIT/PATH       links to contents
//! models--ORG--NAME/refs/REVISION               the commit of a branch or tag
//! .locks/models--ORG--NAME/HASH.lock            locked while a file is downloaded
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};
use emberlm_system::write::write_whole;
use serde_json::Value;

use crate::error::HubError;
use crate::files::{CONFIG, WEIGHTS, WEIGHTS_INDEX, is_model, select};
use crate::name::{ModelName, is_gguf, is_inside};

/// Deepest level of folders in a snapshot that is searched for files.
const DEPTH: usize = 3;

/// A cache's folder.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

/// A model in the cache.
#[derive(Clone, Debug)]
pub struct CachedModel {
    /// Its name, with its GGUF file if it is one.
    pub name: ModelName,
    /// The branches and tags of its commit.
    pub revisions: Vec<String>,
    /// The commit.
    pub commit: String,
    /// The snapshot's directory, or the GGUF file.
    pub path: PathBuf,
    /// The size of its files in bytes.
    pub bytes: u64,
    /// The time at which its newest file was downloaded.
    pub modified: Option<SystemTime>,
    /// The reason that it is incomplete, if it is.
    pub missing: Option<String>,
}

impl Cache {
    /// The cache in the folder `root`, which need not exist.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The cache's folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path of the model: a directory, or a GGUF file.
    ///
    /// # Errors
    /// The reason that it cannot be opened: it is unknown, or files are missing.
    pub fn find(&self, name: &ModelName) -> Result<PathBuf, String> {
        let commit = self
            .commit(name)
            .ok_or_else(|| format!("no revision {}", name.revision()))?;
        self.model_at(name, &commit)
    }

    /// Returns the path of the model at `commit`, or what is missing.
    fn model_at(&self, name: &ModelName, commit: &str) -> Result<PathBuf, String> {
        let snapshot = self.snapshot(name, commit);
        let files = files_below(&snapshot);
        let paths: Vec<&str> = files.iter().map(String::as_str).collect();
        let selected = select(name, &paths).map_err(|error| match error {
            HubError::Files { reason, .. } => reason,
            error => error.to_string(),
        })?;
        match missing_shard(&snapshot, &selected) {
            Some(shard) => Err(format!("{shard} is missing")),
            None => Ok(model_path(&snapshot, name, &selected)),
        }
    }

    /// Returns the models in the cache, sorted by name. Unreadable entries are left out.
    pub fn models(&self) -> Vec<CachedModel> {
        let mut models = Vec::new();
        for folder in entries(&self.root) {
            let Some(name) = ModelName::of_folder(&folder) else {
                continue;
            };
            let refs = self.refs(&name);
            for commit in entries(&self.root.join(&folder).join("snapshots")) {
                self.add_models(&mut models, &name, &commit, &refs);
            }
        }
        models.sort_by_key(|model| (model.name.to_string(), model.commit.clone()));
        models
    }

    /// Adds the models of a snapshot: the one of `config.json`, and each GGUF file.
    fn add_models(
        &self,
        models: &mut Vec<CachedModel>,
        repository: &ModelName,
        commit: &str,
        refs: &BTreeMap<String, String>,
    ) {
        let snapshot = self.snapshot(repository, commit);
        let files = files_below(&snapshot);
        let paths: Vec<&str> = files.iter().map(String::as_str).collect();
        let ggufs = || paths.iter().filter(|path| is_gguf(path) && is_model(path));
        let has_weights = paths.contains(&WEIGHTS) || paths.contains(&WEIGHTS_INDEX);
        // Repositories of GGUF files often keep the configuration of the original beside them.
        let is_directory = paths.contains(&CONFIG) && (has_weights || ggufs().next().is_none());
        let main = is_directory.then(|| repository.clone());
        let ggufs = ggufs().filter_map(|file| format!("{repository}/{file}").parse().ok());
        for name in main.into_iter().chain(ggufs) {
            let found = self.model_at(&name, commit);
            let selected = select(&name, &paths).unwrap_or_default();
            let metadata = selected
                .iter()
                .filter_map(|file| fs::metadata(snapshot.join(file)).ok());
            let (mut bytes, mut modified) = (0, None);
            for file in metadata {
                bytes += file.len();
                modified = modified.max(file.modified().ok());
            }
            let named =
                |(revision, of): (&String, &String)| (of == commit).then(|| revision.clone());
            models.push(CachedModel {
                revisions: refs.iter().filter_map(named).collect(),
                commit: commit.to_owned(),
                path: found.as_ref().unwrap_or(&snapshot).clone(),
                missing: found.err(),
                name,
                bytes,
                modified,
            });
        }
    }

    /// The commits of the branches and tags that the cache knows.
    fn refs(&self, name: &ModelName) -> BTreeMap<String, String> {
        let folder = self.repository(name).join("refs");
        let read = |revision: String| {
            let commit = read_text(&folder.join(&revision), DESCRIPTION_LIMIT).ok()?;
            Some((revision, commit.trim().to_owned()))
        };
        files_below(&folder).into_iter().filter_map(read).collect()
    }

    /// The commit of the revision of `name`, if the cache knows it.
    fn commit(&self, name: &ModelName) -> Option<String> {
        let reference = self.repository(name).join("refs").join(name.revision());
        let commit = match read_text(&reference, DESCRIPTION_LIMIT) {
            Ok(commit) => commit.trim().to_owned(),
            Err(_) => name.revision().to_owned(),
        };
        let known = is_commit(&commit) && self.snapshot(name, &commit).is_dir();
        known.then_some(commit)
    }

    /// The folder of the repository.
    pub(crate) fn repository(&self, name: &ModelName) -> PathBuf {
        self.root.join(name.folder())
    }

    /// The folder of the repository's files at `commit`.
    pub(crate) fn snapshot(&self, name: &ModelName, commit: &str) -> PathBuf {
        self.repository(name).join("snapshots").join(commit)
    }

    /// The content with this hash.
    pub(crate) fn blob(&self, name: &ModelName, hash: &str) -> PathBuf {
        self.repository(name).join("blobs").join(hash)
    }

    /// The file that is locked while the content with this hash is downloaded.
    pub(crate) fn lock(&self, name: &ModelName, hash: &str) -> PathBuf {
        self.root
            .join(".locks")
            .join(name.folder())
            .join(format!("{hash}.lock"))
    }

    /// Links `file` of the snapshot to the content with this hash.
    pub(crate) fn link(
        &self,
        name: &ModelName,
        commit: &str,
        file: &str,
        hash: &str,
    ) -> Result<(), HubError> {
        let path = self.snapshot(name, commit).join(file);
        create_parent(&path)?;
        let levels = file.split('/').count() + 1;
        let target = PathBuf::from("../".repeat(levels)).join("blobs").join(hash);
        if path.exists() {
            return Ok(());
        }
        // A link whose target is gone.
        if path.is_symlink() {
            fs::remove_file(&path).map_err(HubError::file("replace", &path))?;
        }
        link(&target, &self.blob(name, hash), &path).map_err(HubError::file("create", &path))
    }

    /// Records that the revision of `name` is at `commit`.
    pub(crate) fn set_commit(&self, name: &ModelName, commit: &str) -> Result<(), HubError> {
        if is_commit(name.revision()) {
            return Ok(());
        }
        let path = self.repository(name).join("refs").join(name.revision());
        create_parent(&path)?;
        write_whole(&path, commit.as_bytes()).map_err(HubError::file("write", path))
    }
}

/// The model's directory, or the GGUF file, of a snapshot with the selected files.
pub(crate) fn model_path(snapshot: &Path, name: &ModelName, selected: &[&str]) -> PathBuf {
    let first = || selected.iter().copied().find(|path| is_model(path));
    match name.file() {
        Some(file) => snapshot.join(file),
        None if selected.contains(&CONFIG) => snapshot.to_owned(),
        None => first().map_or(snapshot.to_owned(), |file| snapshot.join(file)),
    }
}

/// Returns a file that the table of tensors names and the snapshot lacks, or a missing part of a GGUF file.
fn missing_shard(snapshot: &Path, selected: &[&str]) -> Option<String> {
    let broken = |file: &&str| !snapshot.join(file).exists();
    if let Some(file) = selected.iter().find(|file| broken(file)) {
        return Some((*file).to_owned());
    }
    if let Some(part) = crate::files::missing_part(selected) {
        return Some(part);
    }
    if selected.contains(&WEIGHTS) || !selected.contains(&WEIGHTS_INDEX) {
        return None;
    }
    let index = read_text(&snapshot.join(WEIGHTS_INDEX), DESCRIPTION_LIMIT).ok()?;
    let index: Value = serde_json::from_str(&index).ok()?;
    let shards: BTreeSet<&str> = index["weight_map"]
        .as_object()?
        .values()
        .filter_map(Value::as_str)
        .collect();
    let missing = |shard: &&str| is_inside(shard) && !snapshot.join(shard).exists();
    shards.into_iter().find(missing).map(str::to_owned)
}

/// Returns true for the name of a commit.
pub(crate) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.chars().all(|c| c.is_ascii_hexdigit())
}

pub(crate) fn create_parent(path: &Path) -> Result<(), HubError> {
    match path.parent() {
        Some(folder) => fs::create_dir_all(folder).map_err(HubError::file("create", folder)),
        None => Ok(()),
    }
}

/// Creates a symbolic link, or moves the content where links are not allowed, as Python does.
fn link(target: &Path, blob: &Path, path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    let linked = std::os::unix::fs::symlink(target, path);
    #[cfg(windows)]
    let linked = std::os::windows::fs::symlink_file(target, path);
    #[cfg(not(any(unix, windows)))]
    let linked: io::Result<()> = Err(io::Error::from(io::ErrorKind::Unsupported));
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(_) => fs::rename(blob, path),
        linked => linked,
    }
}

/// The names in a folder, sorted; empty if it cannot be read.
fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

/// The relative paths of the files in a folder and its subfolders, sorted, with `/`.
fn files_below(folder: &Path) -> Vec<String> {
    fn add(files: &mut Vec<String>, folder: &Path, prefix: &str, depth: usize) {
        for name in entries(folder) {
            let path = folder.join(&name);
            match path.is_dir() {
                true if depth > 0 => add(files, &path, &format!("{prefix}{name}/"), depth - 1),
                true => {}
                false => files.push(format!("{prefix}{name}")),
            }
        }
    }
    let mut files = Vec::new();
    add(&mut files, folder, "", DEPTH);
    files
}
