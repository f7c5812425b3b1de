//! Opens models by name.

use std::collections::HashSet;
use std::path::PathBuf;

use crate::cache::{Cache, model_path};
use crate::client::{Client, RemoteFile};
use crate::download::download;
use crate::error::HubError;
use crate::files::select;
use crate::name::ModelName;
use crate::settings::Settings;

/// A Hub and its cache.
pub struct Hub {
    settings: Settings,
    cache: Cache,
}

/// The progress of a download.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The path of the file in the repository.
    pub file: &'a str,
    /// The bytes of all files that are in the cache.
    pub done: u64,
    /// The bytes of all files of the model.
    pub total: u64,
}

/// A model after [`Hub::pull`].
#[derive(Clone, Debug)]
pub struct Pulled {
    /// The model's directory, or its GGUF file.
    pub path: PathBuf,
    /// The commit.
    pub commit: String,
    /// The size of the files in bytes.
    pub bytes: u64,
}

impl Hub {
    /// A Hub with these settings.
    pub fn new(settings: Settings) -> Self {
        let cache = Cache::new(&settings.cache);
        Self { settings, cache }
    }

    /// The Hub and cache of the process's environment.
    ///
    /// # Errors
    /// Those of [`Settings::from_environment`].
    pub fn from_environment() -> Result<Self, HubError> {
        Settings::from_environment().map(Self::new)
    }

    /// The cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Returns the path of a model: a directory, or a GGUF file. If the cache has it, no request is made; otherwise it
    /// is downloaded.
    ///
    /// # Errors
    /// The cache lacks files while downloads are disabled, or those of [`Hub::pull`].
    pub fn open(
        &self,
        name: &ModelName,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<PathBuf, HubError> {
        match self.cache.find(name) {
            Ok(path) => Ok(path),
            Err(reason) if self.settings.offline => Err(HubError::Offline {
                name: name.to_string(),
                reason,
            }),
            Err(_) => Ok(self.pull(name, progress)?.path),
        }
    }

    /// Downloads what the cache lacks of the newest commit of the revision.
    ///
    /// # Errors
    /// Downloads are disabled, a request fails, the repository has no model that can be opened, or a file of the cache
    /// cannot be written. What was downloaded stays, so the next call continues.
    pub fn pull(
        &self,
        name: &ModelName,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Pulled, HubError> {
        if self.settings.offline {
            return Err(HubError::Offline {
                name: name.to_string(),
                reason: "the newest commit is unknown".to_owned(),
            });
        }
        let client = Client::new(&self.settings);
        let repository = client.repository(name)?;
        let commit = repository.commit;
        let paths: Vec<&str> = repository
            .files
            .iter()
            .map(|file| file.path.as_str())
            .collect();
        let selected = select(name, &paths)?;
        let needed: HashSet<&str> = selected.iter().copied().collect();
        let files = repository.files.iter();
        let files: Vec<&RemoteFile> = files
            .filter(|file| needed.contains(file.path.as_str()))
            .collect();
        let total = files.iter().map(|file| file.size).sum();
        let mut before = 0;
        for file in files {
            let mut received = |bytes| {
                progress(Progress {
                    file: &file.path,
                    done: before + bytes,
                    total,
                });
            };
            download(&client, &self.cache, name, &commit, file, &mut received)?;
            self.cache
                .link(name, &commit, &file.path, file.hash.name())?;
            before += file.size;
        }
        // Last, so that the revision points to complete files only.
        self.cache.set_commit(name, &commit)?;
        Ok(Pulled {
            path: model_path(&self.cache.snapshot(name, &commit), name, &selected),
            commit,
            bytes: total,
        })
    }
}
