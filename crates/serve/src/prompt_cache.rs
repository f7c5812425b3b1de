//! Prompt caches on disk: the cached sequences of an engine, saved before the program ends and restored at its next start.
//!
//! Each sequence is a file (`file`) in one folder for all models. Its name has three hashes: of the engine, of everything that
//! its keys and values depend on, and of its tokens.

mod file;

use std::fs::{self, File, Metadata};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use emberlm_generate::{CachedSequence, Engine};
use emberlm_kernels::Backend;
use emberlm_system::read::read_bytes;
use emberlm_system::write::write_whole;

const EXTENSION: &str = ".prompt-cache";
/// The letters of a hash in a file's name.
const LETTERS: usize = 16;
/// Bytes of a header without tokens, at most.
const HEADER: usize = 1 << 20;
/// Bytes of a token in a header, at most.
const TOKEN: usize = 11;

/// The prompt cache of an engine on disk.
#[derive(Clone)]
pub struct PromptCache {
    folder: PathBuf,
    bytes: u64,
    engine: String,
    version: String,
    warn: Arc<dyn Fn(String) + Send + Sync>,
}

/// A file of a prompt cache.
struct CacheFile {
    path: PathBuf,
    name: String,
    bytes: u64,
    used: SystemTime,
}

impl PromptCache {
    /// The cache in `folder`, whose files have at most `bytes` together, those of other engines included. `engine` identifies
    /// the engine among those that use the folder. `version` describes everything that keys and values depend on, such as the
    /// weights. `warn` receives warnings.
    pub fn new(
        folder: PathBuf,
        bytes: u64,
        engine: &str,
        version: &str,
        warn: impl Fn(String) + Send + Sync + 'static,
    ) -> Self {
        Self {
            folder,
            bytes,
            engine: short_hash(engine.as_bytes()),
            version: blake3::hash(version.as_bytes()).to_string(),
            warn: Arc::new(warn),
        }
    }

    /// Restores the most recently used sequences, as many as the engine has slots. Deletes the files of the engine's earlier
    /// versions, and with a warning those that are damaged.
    pub fn restore<B: Backend>(&self, engine: &mut Engine<B>) {
        let mut own = self.own_files();
        own.retain(|file| {
            let is_stale = !file.name.starts_with(&self.prefix());
            if is_stale {
                let _ = fs::remove_file(&file.path);
            }
            !is_stale
        });
        let slots = engine.config().slots;
        let limit = engine.cache_bytes() / slots.max(1) + HEADER + engine.config().capacity * TOKEN;
        let newest = own.len().saturating_sub(slots);
        for file in &own[newest..] {
            let content = match read_bytes(&file.path, limit as u64) {
                Ok(content) => content,
                Err(error) => {
                    self.warn_about(&file.path, "is ignored", &error.to_string());
                    continue;
                }
            };
            let restored = file::decode(&self.version, &content)
                .map(|sequence| engine.restore_sequence(sequence));
            let reason = match restored {
                Ok(true) => continue,
                Ok(false) => "its sequence does not fit the model",
                Err(reason) => reason,
            };
            // It would be refused at every start.
            let _ = fs::remove_file(&file.path);
            self.warn_about(&file.path, "was deleted", reason);
        }
    }

    /// Saves the engine's cached sequences, then deletes the least recently used files beyond the limit.
    pub fn save<B: Backend>(&self, engine: &Engine<B>) {
        let limit = (HEADER + engine.config().capacity * TOKEN) as u64;
        let mut saved = Vec::new();
        for sequence in engine.cached_sequences() {
            let path = self.folder.join(self.name(&sequence));
            let of = (sequence.tokens.clone(), sequence.adapter);
            if let Err(error) = self.write(&path, sequence) {
                // Another file would fail for the same reason.
                self.warn_about(&path, "cannot be written", &error.to_string());
                break;
            }
            saved.push((path, of));
        }
        for file in self.own_files() {
            let is_saved = saved.iter().any(|(path, _)| *path == file.path);
            let begins_saved = || {
                let opened = File::open(&file.path).ok();
                let header = opened.and_then(|opened| file::header(BufReader::new(opened), limit));
                header.is_some_and(|header| {
                    saved.iter().any(|(_, (tokens, adapter))| {
                        *adapter == header.adapter && tokens.starts_with(&header.tokens)
                    })
                })
            };
            if !is_saved && begins_saved() {
                let _ = fs::remove_file(&file.path);
            }
        }
        self.make_room(0);
    }

    /// Writes a sequence, or marks its file as used if there is one.
    fn write(&self, path: &Path, sequence: CachedSequence) -> io::Result<()> {
        if path.exists() {
            return File::options()
                .append(true)
                .open(path)?
                .set_modified(SystemTime::now());
        }
        let Some(content) = file::encode(&self.version, sequence) else {
            return Ok(());
        };
        let bytes = content.len() as u64;
        if bytes <= self.bytes {
            self.make_room(bytes);
            write_whole(path, &content)?;
        }
        Ok(())
    }

    /// Deletes the least recently used files until `more` bytes fit.
    fn make_room(&self, more: u64) {
        let mut files = self.files();
        let mut total: u64 = files.iter().map(|file| file.bytes).sum();
        files.sort_by_key(|file| file.used);
        for file in files {
            if total.saturating_add(more) <= self.bytes {
                return;
            }
            if fs::remove_file(&file.path).is_ok() {
                total -= file.bytes;
            }
        }
    }

    /// The beginning of the names of the engine's files.
    fn prefix(&self) -> String {
        format!("{}-{}-", self.engine, &self.version[..LETTERS])
    }

    fn name(&self, sequence: &CachedSequence) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(format!("{:?} {}", sequence.adapter, sequence.chunked).as_bytes());
        for id in &sequence.tokens {
            hasher.update(&id.to_le_bytes());
        }
        let tokens = hasher.finalize().to_string();
        format!("{}{}{EXTENSION}", self.prefix(), &tokens[..LETTERS])
    }

    /// The engine's files, the least recently used one first.
    fn own_files(&self) -> Vec<CacheFile> {
        let mut files = self.files();
        files.retain(|file| file.name.starts_with(&format!("{}-", self.engine)));
        files.sort_by_key(|file| file.used);
        files
    }

    /// The files of all engines in the folder.
    fn files(&self) -> Vec<CacheFile> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten();
        let files = entries.filter_map(|entry| {
            let entry = entry.ok()?;
            let metadata = entry.metadata().ok().filter(Metadata::is_file)?;
            let name = entry.file_name().into_string().ok();
            Some(CacheFile {
                path: entry.path(),
                name: name.filter(|name| is_cache(name))?,
                bytes: metadata.len(),
                used: metadata.modified().ok()?,
            })
        });
        files.collect()
    }

    fn warn_about(&self, path: &Path, event: &str, reason: &str) {
        (self.warn)(format!(
            "the prompt cache {} {event}: {reason}",
            path.display()
        ));
    }
}

/// Returns true for the name of a file of a prompt cache.
fn is_cache(name: &str) -> bool {
    let hashes = name.strip_suffix(EXTENSION);
    let hashes: Vec<&str> = hashes.unwrap_or_default().split('-').collect();
    let is_hash =
        |text: &&str| text.len() == LETTERS && text.bytes().all(|c| c.is_ascii_hexdigit());
    hashes.len() == 3 && hashes.iter().all(is_hash)
}

/// The first letters of a hash.
fn short_hash(bytes: &[u8]) -> String {
    let mut hash = blake3::hash(bytes).to_string();
    hash.truncate(LETTERS);
    hash
}
