//! `cargo xtask fuzz`: runs the fuzzers of `fuzz/` with libFuzzer on the stable compiler.
//!
//! Map: `targets` lists the fuzzers with their seeds and limits; `log` parses libFuzzer's output.
//!
//! The crate `libfuzzer-sys` contains libFuzzer's C++ source. A pass of the stable compiler adds the coverage
//! counters that libFuzzer reads (`fuzz/instrument.sh`). It instruments the workspace's crates only, so the
//! dependencies are shared with the tests' build. Corpora, which later runs continue from, logs and inputs with
//! findings are in `target/fuzz`.

mod log;
mod targets;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

use cargo_metadata::Metadata;

use self::{log::Coverage, targets::Target};
use crate::{error::Error, test, tidy, workspace};

/// The compiler wrapper that adds coverage counters to the workspace's crates.
const WRAPPER: &str = "fuzz/instrument.sh";

/// Memory limit of a fuzzer's process in MiB. An input that exceeds it is a finding.
const MEMORY_MIB: u32 = 1500;
/// Prefixes of the names of files that libFuzzer writes for findings.
const FINDINGS: [&str; 3] = ["crash-", "oom-", "timeout-"];

/// Arguments of `cargo xtask fuzz`.
#[derive(Clone, Debug, clap::Args)]
pub struct FuzzArgs {
    /// Run only these fuzzers.
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Seconds per fuzzer.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Concurrent processes per fuzzer.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Continue after a finding, and exit with success.
    #[arg(long)]
    keep_going: bool,
}

/// The figures of one fuzzer.
#[derive(Debug)]
struct Run {
    target: &'static Target,
    seconds: f64,
    before: Option<Coverage>,
    after: Option<Coverage>,
    /// The number of initial inputs, and of added inputs.
    inputs: [usize; 2],
    findings: Vec<PathBuf>,
    places: Vec<String>,
}

/// Builds and runs the fuzzers and prints a table. Fails if there is a finding.
pub fn run(args: &FuzzArgs) -> Result<ExitCode, Error> {
    let chosen = targets::chosen(&args.targets)?;
    let metadata = workspace::metadata()?;
    let root = metadata.workspace_root.as_std_path();
    let folder = metadata.target_directory.join("fuzz").into_std_path_buf();
    build(&metadata, &chosen)?;
    let programs = metadata.target_directory.join("debug");
    let mut runs = Vec::new();
    for target in chosen {
        let program = programs.join(target.name);
        let run = fuzz(target, args, root, &folder, program.as_std_path())?;
        eprintln!("{}", run.row());
        runs.push(run);
    }
    println!("{}", table(&runs));
    let mut found = false;
    for run in &runs {
        for place in &run.places {
            println!("{}: {place}", run.target.name);
        }
        for path in &run.findings {
            found = true;
            let program = programs.join(run.target.name);
            println!("reproduce: {program} {}", path.display());
        }
    }
    Ok(match found && !args.keep_going {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// Builds the fuzzers with the features of the tests, so that they share dependencies.
fn build(metadata: &Metadata, chosen: &[&Target]) -> Result<(), Error> {
    let mut features = test::workspace_features(metadata);
    features.push("emberlm-fuzz/libfuzzer");
    let mut command = workspace::cargo();
    command
        .args(["build", "--workspace", "--features", &features.join(",")])
        .args(chosen.iter().flat_map(|target| ["--bin", target.name]))
        .env(
            "RUSTC_WORKSPACE_WRAPPER",
            metadata.workspace_root.join(WRAPPER),
        );
    workspace::success(&mut command)
}

/// Runs one fuzzer for the given time.
fn fuzz(
    target: &'static Target,
    args: &FuzzArgs,
    root: &Path,
    folder: &Path,
    program: &Path,
) -> Result<Run, Error> {
    let corpus = folder.join("corpus").join(target.name);
    let artifacts = folder.join("findings").join(target.name);
    let logs = folder.join("logs");
    for folder in [&corpus, &artifacts, &logs] {
        fs::create_dir_all(folder).map_err(write(folder))?;
    }
    let seeds: Vec<PathBuf> = target.seeds.iter().map(|seed| root.join(seed)).collect();
    let kept = count(&corpus)?;
    let mut begun = kept;
    for seed in &seeds {
        begun += count(seed)?;
    }
    let known = findings(&artifacts)?;
    let mut inited = Command::new(program);
    inited.arg("-runs=0").arg(&corpus).args(&seeds);
    // Fails if a seed is a finding, which the run below reports.
    let inited = inited.output().map_err(|source| Error::Start {
        command: workspace::shown(&inited),
        source,
    })?;
    let covered = log::of_corpus(&String::from_utf8_lossy(&inited.stderr));
    let path = logs.join(target.name).with_extension("log");
    let log = fs::File::create(&path).map_err(write(&path))?;
    let stdout = log.try_clone().map_err(write(&path))?;
    let mut command = Command::new(program);
    // In fork mode a finding ends a child process, not the run.
    command
        .arg(format!("-fork={}", args.jobs.max(1)))
        .args([
            "-ignore_crashes=1",
            "-ignore_ooms=1",
            "-ignore_timeouts=1",
            "-reload=0",
        ])
        .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
        .arg(format!("-timeout={}", target.timeout))
        .arg(format!("-max_len={}", target.longest))
        .arg(format!("-max_total_time={}", args.seconds))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(&corpus)
        .args(&seeds)
        // Without this, traces of findings would fill the log.
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(log);
    let start = Instant::now();
    let status = workspace::status(&mut command)?;
    let seconds = start.elapsed().as_secs_f64();
    let text = String::from_utf8_lossy(&fs::read(&path).map_err(|source| Error::Read {
        path: path.clone(),
        source,
    })?)
    .into_owned();
    let after = log::last(&text);
    if after.is_none() {
        eprintln!("{} has run nothing; see {}", target.name, path.display());
        return Err(Error::Failed {
            command: workspace::shown(&command),
            status,
        });
    }
    let mut findings = findings(&artifacts)?;
    findings.retain(|path| !known.contains(path));
    Ok(Run {
        target,
        seconds,
        before: covered,
        after,
        inputs: [begun, count(&corpus)?.saturating_sub(kept)],
        findings,
        places: log::places(&text),
    })
}

impl Run {
    fn row(&self) -> String {
        let before = self.before.unwrap_or_default();
        let after = self.after.unwrap_or_default();
        let [begun, added] = self.inputs;
        format!(
            "| `{}` | {:.0} | {} | {} → {} | {} → {} | {begun} + {added} | {} |",
            self.target.name,
            self.seconds,
            after.executions,
            before.edges,
            after.edges,
            before.features,
            after.features,
            self.findings.len(),
        )
    }
}

fn table(runs: &[Run]) -> String {
    let head = "| target | seconds | executions | edges | features | inputs | findings |\n|---|---|---|---|---|---|---|";
    let rows = runs.iter().map(|run| format!("\n{}", run.row()));
    format!("{head}{}", rows.collect::<String>())
}

/// The number of files below a folder.
fn count(folder: &Path) -> Result<usize, Error> {
    let mut files = 0;
    for path in tidy::entries(folder)? {
        files += match path.is_dir() {
            true => count(&path)?,
            false => 1,
        };
    }
    Ok(files)
}

/// The inputs that libFuzzer has written for findings.
fn findings(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut paths = tidy::entries(folder)?;
    paths.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        FINDINGS.iter().any(|kind| name.starts_with(kind))
    });
    Ok(paths)
}

fn write(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::Write {
        path: path.to_owned(),
        source,
    }
}
