//! Test helpers: a sandbox folder to run the binary in, and models made without training.

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

/// A temporary folder in which the binary runs, so that its messages contain relative paths.
pub struct Sandbox {
    folder: tempfile::TempDir,
    /// A cache shared by all tests, which reuses GPU autotuning results and protects the user's files.
    cache: PathBuf,
}

/// The result of running the binary.
pub struct CommandOutput {
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

    /// Uses a separate cache. Two processes that autotune the same product concurrently may select different
    /// kernels, of which the shared cache keeps one.
    #[must_use]
    pub fn with_own_cache(mut self) -> Self {
        self.cache = self.path("cache");
        self
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file and creates its parent folders.
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

    /// A shell command in the folder. `$EMBERLM` is the binary.
    #[cfg(unix)]
    pub fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command.current_dir(self.folder.path()).args(["-c", line]);
        command.stdin(Stdio::null()).env_remove("NO_COLOR");
        command.env("EMBERLM", env!("CARGO_BIN_EXE_emberlm"));
        command.env("XDG_CACHE_HOME", &self.cache);
        command
    }

    /// Runs a shell command.
    #[cfg(unix)]
    pub fn sh(&self, line: &str) -> CommandOutput {
        let output = self.shell(line).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        CommandOutput {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Runs the binary. In its output, `[FOLDER]` replaces this folder's path.
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> CommandOutput {
        let output = self.command(args).output().unwrap();
        let folder = fs::canonicalize(self.folder.path()).unwrap();
        let text = |bytes| {
            let text = String::from_utf8(bytes).unwrap();
            text.replace(folder.to_str().unwrap(), "[FOLDER]")
        };
        CommandOutput {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Runs a command line without quoting: words are separated by spaces.
    pub fn words(&self, line: &str) -> CommandOutput {
        self.run(line.split_whitespace())
    }

    /// The names of everything in the folder, including hidden files.
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

/// Stops children from inheriting ignored signals. The binary leaves ignored signals ignored, and a shell
/// starts background jobs, including these tests, with SIGINT ignored. A signal with a handler in this
/// process is not ignored in its children.
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

impl CommandOutput {
    /// Returns the stdout of a run that succeeded with empty stderr.
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

    /// Parses the stdout of a successful run as JSON.
    #[track_caller]
    pub fn json<T: DeserializeOwned>(self) -> T {
        serde_json::from_str(&self.ok()).unwrap()
    }
}

/// Formats the result for snapshots.
impl fmt::Display for CommandOutput {
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

/// Asserts that two numbers differ by at most `tolerance`, relative to the expected one.
#[track_caller]
pub fn close(found: &serde_json::Value, expected: &serde_json::Value, tolerance: f64) {
    let [found, expected] = [found, expected].map(|value| value.as_f64().unwrap());
    let error = (found / expected - 1.0).abs();
    assert!(
        error <= tolerance,
        "{found}, not {expected}: off by {error:.1e}"
    );
}
