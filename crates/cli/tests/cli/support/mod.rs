//! Helpers of the tests: a separate folder in which the binary runs, and models made without training.

pub mod model;
pub mod server;
#[cfg(unix)]
pub mod terminal;
pub mod train;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fmt, fs};

use serde::de::DeserializeOwned;

/// A folder that is removed with the test. The binary runs in it, so that paths in its messages are relative.
pub struct Sandbox {
    folder: tempfile::TempDir,
    /// Shared by the tests: a GPU's measurements are reused, and the user's files are not touched.
    cache: PathBuf,
}

/// The result of a run of the binary.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Sandbox {
    pub fn new() -> Self {
        #[cfg(unix)]
        start_children_without_ignored_signals();
        Self {
            folder: tempfile::tempdir().unwrap(),
            cache: env!("CARGO_TARGET_TMPDIR").into(),
        }
    }

    /// Gives the runs here a separate cache. Two processes that tune the same product at once can choose different kernels, and the
    /// shared cache keeps the choice of one of them.
    #[must_use]
    pub fn with_own_cache(mut self) -> Self {
        self.cache = self.path("cache");
        self
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file, with the folders above it.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_emberlm"));
        command.current_dir(self.folder.path()).args(args);
        command.stdin(Stdio::null()).env_remove("NO_COLOR");
        command.env("XDG_CACHE_HOME", &self.cache);
        command
    }

    /// A command line of a shell in the folder, in which `$EMBERLM` is the binary.
    #[cfg(unix)]
    pub fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command.current_dir(self.folder.path()).args(["-c", line]);
        command.stdin(Stdio::null()).env_remove("NO_COLOR");
        command.env("EMBERLM", env!("CARGO_BIN_EXE_emberlm"));
        command.env("XDG_CACHE_HOME", &self.cache);
        command
    }

    /// Runs a command line of a shell.
    #[cfg(unix)]
    pub fn sh(&self, line: &str) -> Ran {
        let output = self.shell(line).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ran {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Runs the binary; `[FOLDER]` stands for this folder where its path is in what it says.
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        let output = self.command(args).output().unwrap();
        let folder = fs::canonicalize(self.folder.path()).unwrap();
        let text = |bytes| {
            let text = String::from_utf8(bytes).unwrap();
            text.replace(folder.to_str().unwrap(), "[FOLDER]")
        };
        Ran {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Runs a command line whose words hold no blanks.
    pub fn words(&self, line: &str) -> Ran {
        self.run(line.split_whitespace())
    }

    /// The names of everything in the folder, hidden files too.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<String> = entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// The binary leaves ignored signals ignored, and a shell starts background jobs with SIGINT ignored, the tests too. A signal that has a
/// handler in this process is not ignored in its children.
#[cfg(unix)]
fn start_children_without_ignored_signals() {
    use std::sync::Once;
    use std::sync::atomic::AtomicBool;

    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            let always = AtomicBool::new(true).into();
            signal_hook::flag::register_conditional_shutdown(signal, 1, always).unwrap();
        }
    });
}

impl Ran {
    /// Stdout of a run that must have succeeded without a word on stderr.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(
            (self.code, self.stderr.as_str()),
            (Some(0), ""),
            "{}",
            self.stdout
        );
        self.stdout
    }

    /// Stdout of a run that must have succeeded, as JSON.
    #[track_caller]
    pub fn json<T: DeserializeOwned>(self) -> T {
        serde_json::from_str(&self.ok()).unwrap()
    }
}

/// For snapshots.
impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self
            .code
            .map_or("by a signal".to_owned(), |code| code.to_string());
        writeln!(f, "exit {code}")?;
        if !self.stdout.is_empty() {
            write!(f, "--- stdout\n{}", self.stdout)?;
        }
        if !self.stderr.is_empty() {
            write!(f, "--- stderr\n{}", self.stderr)?;
        }
        Ok(())
    }
}

/// Two numbers that differ by at most a part of the expected one.
#[track_caller]
pub fn close(found: &serde_json::Value, expected: &serde_json::Value, tolerance: f64) {
    let [found, expected] = [found, expected].map(|value| value.as_f64().unwrap());
    let error = (found / expected - 1.0).abs();
    assert!(
        error <= tolerance,
        "{found}, not {expected}: off by {error:.1e}"
    );
}
