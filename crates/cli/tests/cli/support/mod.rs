//! Test helpers: a sandbox folder to run the binary in, and models made without training.

pub mod history;
pub mod messages;
pub mod model;
pub mod server;
#[path = "../../../../../tests/tables.rs"]
pub mod tables;
pub mod tensors;
#[cfg(unix)]
pub mod terminal;
pub mod train;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, fs, thread};

use serde::de::DeserializeOwned;
use serde_json::Value;

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

/// The environment variable by which the allocator uses no large pages.
pub const SMALL_PAGES: (&str, &str) = ("MIMALLOC_ALLOW_THP", "0");

impl Sandbox {
    pub fn new() -> Self {
        #[cfg(unix)]
        start_children_without_ignored_signals();
        Self {
            folder: tempfile::tempdir().unwrap(),
            cache: env!("CARGO_TARGET_TMPDIR").into(),
        }
    }

    /// A sandbox with `text.txt` and the dataset `data` that is prepared from it.
    pub fn with_text(text: impl AsRef<[u8]>, tokenizer: &str) -> Self {
        let sandbox = Self::new();
        sandbox.write("text.txt", text);
        sandbox.ok(&format!(
            "prepare text.txt --out data --tokenizer {tokenizer}"
        ));
        sandbox
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

    /// A command whose memory is measured, in small pages. Large pages of the system hold whole blocks of 2 MiB of which parts
    /// are used: the peaks of equal runs differ by a fifth, and the memory of a long run fluctuates by 16 MiB.
    pub fn measured_command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.command(args);
        command.env(SMALL_PAGES.0, SMALL_PAGES.1);
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
        self.shell(line).output().unwrap().into()
    }

    /// Runs the binary. In its output, `[FOLDER]` replaces this folder's path.
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> CommandOutput {
        let mut ran = CommandOutput::from(self.command(args).output().unwrap());
        let folder = fs::canonicalize(self.folder.path()).unwrap();
        for text in [&mut ran.stdout, &mut ran.stderr] {
            *text = text.replace(folder.to_str().unwrap(), "[FOLDER]");
        }
        ran
    }

    /// Runs a command line with `input` on stdin.
    pub fn feed(&self, line: &str, input: impl AsRef<[u8]>) -> CommandOutput {
        let mut command = self.command(line.split_whitespace());
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // The program may exit before it has read all of its input.
        let _ = child.stdin.take().unwrap().write_all(input.as_ref());
        child.wait_with_output().unwrap().into()
    }

    /// Runs a command line without quoting: words are separated by spaces.
    pub fn words(&self, line: &str) -> CommandOutput {
        self.run(line.split_whitespace())
    }

    /// Runs a command line that must succeed. Warnings are allowed.
    #[track_caller]
    pub fn succeeds(&self, line: &str) -> CommandOutput {
        self.words(line).exits(0)
    }

    /// Runs a command line that must fail with exit code 1 and without output.
    #[track_caller]
    pub fn fails(&self, line: &str) -> CommandOutput {
        self.words(line).fails_with(1)
    }

    /// Runs a command line that must be refused as wrong usage, with exit code 2 and without output.
    #[track_caller]
    pub fn is_misused(&self, line: &str) -> CommandOutput {
        self.words(line).fails_with(2)
    }

    /// The stderr of a command line that must be refused, with exit code 1 or 2 and without output.
    #[track_caller]
    pub fn refusal(&self, line: &str) -> String {
        self.words(line).refusal()
    }

    /// The stdout of a command line that must succeed without a warning.
    #[track_caller]
    pub fn ok(&self, line: &str) -> String {
        self.words(line).ok()
    }

    /// The JSON that a command line prints without a warning.
    #[track_caller]
    pub fn json<T: DeserializeOwned>(&self, line: &str) -> T {
        self.words(line).json()
    }

    #[track_caller]
    pub fn bytes(&self, name: impl AsRef<Path>) -> Vec<u8> {
        let path = self.path(name);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    #[track_caller]
    pub fn text(&self, name: impl AsRef<Path>) -> String {
        String::from_utf8(self.bytes(name)).unwrap()
    }

    #[track_caller]
    pub fn value(&self, name: impl AsRef<Path>) -> Value {
        serde_json::from_slice(&self.bytes(name)).unwrap()
    }

    /// Changes a JSON file.
    #[track_caller]
    pub fn edit(&self, name: impl AsRef<Path>, change: impl FnOnce(&mut Value)) {
        edit_json(&self.path(name), change);
    }

    /// Starts a command line without reading its output.
    pub fn background(&self, line: &str) -> Child {
        let mut command = self.command(line.split_whitespace());
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    /// The names of everything in the sandbox's folder, including hidden files.
    pub fn names(&self) -> Vec<String> {
        self.names_in("")
    }

    /// The sorted names of everything in a folder, including hidden files.
    pub fn names_in(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).unwrap();
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

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl CommandOutput {
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self}");
        self
    }

    #[track_caller]
    pub fn fails_with(self, code: i32) -> Self {
        assert_eq!((self.code, &*self.stdout), (Some(code), ""), "{self}");
        self
    }

    /// The stderr of a run that was refused, with exit code 1 or 2 and without output.
    #[track_caller]
    pub fn refusal(self) -> String {
        assert!(matches!(self.code, Some(1 | 2)), "{self}");
        assert_eq!(self.stdout, "", "{self}");
        self.stderr
    }

    /// Asserts that stderr contains a text.
    #[track_caller]
    pub fn says(&self, part: &str) -> &Self {
        assert!(self.stderr.contains(part), "no `{part}` in\n{self}");
        self
    }

    /// Asserts that stdout contains a text.
    #[track_caller]
    pub fn prints(&self, part: &str) -> &Self {
        assert!(self.stdout.contains(part), "no `{part}` in\n{self}");
        self
    }

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

/// Assertions on a text that print it when they fail.
pub trait AssertText {
    fn assert_has(&self, part: &str);
    fn assert_lacks(&self, part: &str);
}

impl AssertText for str {
    #[track_caller]
    fn assert_has(&self, part: &str) {
        assert!(self.contains(part), "no `{part}` in\n{self}");
    }

    #[track_caller]
    fn assert_lacks(&self, part: &str) {
        assert!(!self.contains(part), "`{part}` in\n{self}");
    }
}

/// Changes a JSON file.
pub fn edit_json(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

/// Waits for a condition, for two minutes at most.
#[track_caller]
pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        let waited = started.elapsed();
        assert!(waited < Duration::from_secs(120), "{what} does not come");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The folder of the model crate's fixtures.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures")
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
pub fn close(found: &Value, expected: &Value, tolerance: f64) {
    let [found, expected] = [found, expected].map(|value| value.as_f64().unwrap());
    let error = (found / expected - 1.0).abs();
    assert!(
        error <= tolerance,
        "{found}, not {expected}: off by {error:.1e}"
    );
}
