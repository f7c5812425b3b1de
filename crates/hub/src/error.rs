//! Errors of finding and downloading models.

use std::io;
use std::path::PathBuf;

/// A model that cannot be found or downloaded.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The name breaks a rule.
    #[error("`{text}`: {rule}")]
    Name {
        /// The name as given.
        text: String,
        /// The rule.
        rule: &'static str,
    },
    /// No home directory is known, so neither is the cache's folder.
    #[error("cannot locate the Hugging Face cache: neither HF_HOME nor a home directory is set")]
    NoCache,
    /// A variable of the environment has an invalid value.
    #[error("{variable}={value}: {rule}")]
    Setting {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The rule.
        rule: &'static str,
    },
    /// Files are missing in the cache, and downloads are disabled.
    #[error("{name} is not in the cache ({reason}), and HF_HUB_OFFLINE disables downloads")]
    Offline {
        /// The model's name.
        name: String,
        /// The missing files.
        reason: String,
    },
    /// The Hub has no such repository, revision or file, or hides it.
    #[error("{name}: not found on {endpoint}")]
    NotFound {
        /// The model's name.
        name: String,
        /// Address of the Hub.
        endpoint: String,
    },
    /// The repository is private or gated.
    #[error("{name}: access denied by {endpoint} (status {status})")]
    Denied {
        /// The model's name.
        name: String,
        /// Address of the Hub.
        endpoint: String,
        /// The HTTP status, 401 or 403.
        status: u16,
        /// True if a token was sent.
        with_token: bool,
    },
    /// The Hub answers with another error status, after the retries.
    #[error("{url}: status {status}")]
    Status {
        /// The request's address.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// No connection to the Hub can be made.
    #[error("cannot reach {endpoint}: {reason}")]
    Unreachable {
        /// Address of the Hub.
        endpoint: String,
        /// The failure.
        reason: String,
    },
    /// The request or the transfer fails, after the retries.
    #[error("{url}: {reason}")]
    Network {
        /// The request's address.
        url: String,
        /// The failure.
        reason: String,
    },
    /// The Hub's answer is not what its API defines.
    #[error("{url}: unexpected answer: {reason}")]
    Answer {
        /// The request's address.
        url: String,
        /// The difference.
        reason: String,
    },
    /// The downloaded bytes do not have the file's hash.
    #[error("{url}: the downloaded file is damaged: {reason}")]
    Damaged {
        /// The file's address.
        url: String,
        /// The difference.
        reason: String,
    },
    /// The repository's files do not make a model that can be opened.
    #[error("{name}: {reason}")]
    Files {
        /// The model's name.
        name: String,
        /// The missing files.
        reason: String,
    },
    /// The repository has several GGUF files, of which one must be named.
    #[error("{name}: has several GGUF files: {}", files.join(", "))]
    Choice {
        /// The model's name.
        name: String,
        /// The files.
        files: Vec<String>,
    },
    /// A file of the cache cannot be read or written.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The attempted action.
        action: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
}

impl HubError {
    /// Returns a function for `map_err` on the result of a file operation.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            path,
            action,
            source,
        }
    }
}
