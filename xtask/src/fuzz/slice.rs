//! A slice: one run of a fuzzer for a given time, and its figures.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use tempfile::TempDir;

use super::{
    corpus::Corpus,
    log::{self, Coverage},
    targets::Target,
};
use crate::{error::Error, tidy, workspace};

/// Prefixes of the names of files that libFuzzer writes for findings.
const FINDINGS: [&str; 3] = ["crash-", "oom-", "timeout-"];

/// The file system in memory on Linux.
const MEMORY: &str = "/dev/shm";

/// The header of a table of [`Slice::row`].
pub const HEAD: &str = "| target | seconds | CPU seconds | executions | edges | features | inputs | findings |\n|---|---|---|---|---|---|---|---|";

/// The folders and the program of a fuzzer.
#[derive(Debug)]
pub struct Fuzzer {
    pub target: Target,
    program: PathBuf,
    /// The inputs that this machine's slices have found.
    pub found: PathBuf,
    /// The inputs of the repository's corpus, as files.
    kept: PathBuf,
    /// The inputs of findings.
    artifacts: PathBuf,
    /// An empty folder.
    empty: PathBuf,
    log: PathBuf,
    seeds: Vec<PathBuf>,
    /// The folder of the fuzzer's temporary files.
    scratch: TempDir,
}

/// The figures of a slice.
#[derive(Debug)]
pub struct Slice {
    pub target: Target,
    pub seconds: f64,
    /// CPU time of all processes in seconds. On a busy machine it is far below `seconds`.
    pub cpu_seconds: f64,
    pub before: Coverage,
    pub after: Coverage,
    /// The number of initial inputs, and of added inputs.
    pub inputs: [usize; 2],
    /// The inputs of findings.
    pub findings: Vec<PathBuf>,
    /// The distinct findings.
    pub places: Vec<String>,
}

impl Fuzzer {
    /// Creates the folders of a fuzzer in `folder`, with the inputs of the repository's corpus.
    pub fn new(
        target: Target,
        program: PathBuf,
        root: &Path,
        folder: &Path,
    ) -> Result<Self, Error> {
        let of = |kind: &str| folder.join(kind).join(&target.name);
        let fuzzer = Self {
            program,
            found: of("corpus"),
            kept: of("kept"),
            artifacts: of("findings"),
            empty: folder.join("empty"),
            log: of("logs").with_extension("log"),
            seeds: target.seeds.iter().map(|seed| root.join(seed)).collect(),
            scratch: scratch()?,
            target,
        };
        let logs = folder.join("logs");
        for folder in [&fuzzer.found, &fuzzer.artifacts, &fuzzer.empty, &logs] {
            fs::create_dir_all(folder).map_err(Error::write(folder))?;
        }
        fuzzer.unpack(root)?;
        Ok(fuzzer)
    }

    /// Writes the inputs of the repository's corpus as files.
    pub fn unpack(&self, root: &Path) -> Result<(), Error> {
        Corpus::read(root, &self.target.name)?.unpack(&self.kept)
    }

    /// The fuzzer's program with the limits of an input and the folder of findings.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(self.target.limits())
            .arg(format!("-artifact_prefix={}/", self.artifacts.display()))
            .env("TMPDIR", self.scratch.path())
            // Traces of findings would fill the log.
            .env("RUST_BACKTRACE", "0");
        command
    }

    /// Runs this many concurrent processes of the fuzzer for the given time.
    pub fn run(&self, jobs: usize, max_seconds: u64) -> Result<Slice, Error> {
        let begun = count(&self.found)?;
        let mut inputs = begun + count(&self.kept)?;
        for seed in &self.seeds {
            inputs += count(seed)?;
        }
        let known = self.findings()?;
        let log = fs::File::create(&self.log).map_err(Error::write(&self.log))?;
        let stdout = log.try_clone().map_err(Error::write(&self.log))?;
        let mut command = self.command();
        // In fork mode a finding ends a child process, not the run.
        command
            .arg(format!("-fork={}", jobs.max(1)))
            .args([
                "-ignore_crashes=1",
                "-ignore_ooms=1",
                "-ignore_timeouts=1",
                "-reload=0",
            ])
            .arg(format!("-max_total_time={}", max_seconds))
            .args([&self.found, &self.kept])
            .args(&self.seeds)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(log);
        let (start, cpu_start) = (Instant::now(), cpu_seconds());
        let status = workspace::status(&mut command)?;
        let seconds = start.elapsed().as_secs_f64();
        let cpu_seconds = cpu_seconds() - cpu_start;
        let text = fs::read(&self.log).map_err(Error::read(&self.log))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let Some([before, after]) = log::first_and_last(&text) else {
            let (name, log) = (&self.target.name, self.log.display());
            eprintln!("{name} has run nothing; see {log}");
            return Err(Error::failed(&command, status));
        };
        let mut findings = self.findings()?;
        findings.retain(|path| !known.contains(path));
        Ok(Slice {
            target: self.target.clone(),
            seconds,
            cpu_seconds,
            before,
            after,
            inputs: [inputs, count(&self.found)?.saturating_sub(begun)],
            findings,
            places: log::places(&text),
        })
    }

    /// The coverage of the seeds, of the seeds and the repository's corpus, and of all inputs.
    pub fn coverages(&self) -> Result<[Coverage; 3], Error> {
        let (kept, found) = (&self.kept, &self.found);
        Ok([
            self.coverage(&[])?,
            self.coverage(&[kept])?,
            self.coverage(&[kept, found])?,
        ])
    }

    /// The coverage of the seeds and of the inputs in `folders`. It is zero if one of them is a finding.
    ///
    /// Fork mode counts more: also the code that runs once in a process, with the first input.
    fn coverage(&self, folders: &[&PathBuf]) -> Result<Coverage, Error> {
        let mut command = self.command();
        command
            .arg("-runs=0")
            .arg(&self.empty)
            .args(folders)
            .args(&self.seeds);
        Ok(log::of_corpus(&stderr(&mut command)?).unwrap_or_default())
    }

    /// The inputs that libFuzzer has written for findings.
    fn findings(&self) -> Result<Vec<PathBuf>, Error> {
        let mut paths = tidy::entries(&self.artifacts)?;
        paths.retain(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            FINDINGS.iter().any(|kind| name.starts_with(kind))
        });
        Ok(paths)
    }
}

impl Slice {
    pub fn row(&self) -> String {
        let Self { before, after, .. } = self;
        let [begun, added] = self.inputs;
        format!(
            "| `{}` | {:.0} | {:.0} | {} | {} → {} | {} → {} | {begun} + {added} | {} |",
            self.target.name,
            self.seconds,
            self.cpu_seconds,
            after.executions,
            before.edges,
            after.edges,
            before.features,
            after.features,
            self.findings.len(),
        )
    }
}

/// Runs a fuzzer and returns its stderr. Its exit code is ignored: it is an error for an input that is a finding,
/// which a slice reports.
pub fn stderr(command: &mut Command) -> Result<String, Error> {
    let output = workspace::output(command)?;
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A temporary folder, in memory if the system has such a file system: most targets write each input to a file.
fn scratch() -> Result<TempDir, Error> {
    let memory = Path::new(MEMORY);
    let folder = match memory.is_dir() {
        true => memory.to_owned(),
        false => std::env::temp_dir(),
    };
    tempfile::tempdir_in(&folder).map_err(Error::write(&folder))
}

/// CPU time of this process's finished children and their children, in seconds. 0 where the system does not list it.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The fields after the program's name, which may contain spaces, begin with the third.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
    let fields = fields.unwrap_or_default().split_whitespace();
    // `cutime` and `cstime`, in hundredths of a second.
    let ticks = fields.skip(13).take(2);
    ticks
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}

/// The number of files below a folder.
fn count(folder: &Path) -> Result<usize, Error> {
    Ok(tidy::below(folder, &|_| true)?.len())
}
