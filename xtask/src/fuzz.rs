//! `cargo xtask fuzz`: the fuzzers of `fuzz/`, by libFuzzer on the stable compiler.
//!
//! Map: `targets` lists the fuzzers with their seeds and limits, `log` reads what libFuzzer prints.
//!
//! libFuzzer's C++ source comes with the crate `libfuzzer-sys`; a pass of the stable compiler adds the coverage counters that it
//! reads, to the workspace's crates only (`fuzz/instrument.sh`), so that the dependencies are those the tests have built. The corpora,
//! which later runs continue from, the logs and the inputs of findings are under `target/fuzz`.

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

/// Compiles the workspace's crates with coverage counters.
const WRAPPER: &str = "fuzz/instrument.sh";

/// Memory of a fuzzer's process in MiB, above which an input is a finding.
const MEMORY_MIB: u32 = 1500;
/// Beginnings of the names of files that libFuzzer writes for findings.
const FINDINGS: [&str; 3] = ["crash-", "oom-", "timeout-"];

/// Arguments of `cargo xtask fuzz`.
#[derive(Clone, Debug, clap::Args)]
pub struct FuzzArgs {
    /// Run these fuzzers only.
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Seconds for each fuzzer.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Processes of each fuzzer at once.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Keep going after a finding, and succeed.
    #[arg(long)]
    keep_going: bool,
}

/// One fuzzer's figures.
#[derive(Debug)]
struct Run {
    target: &'static Target,
    seconds: f64,
    before: Option<Coverage>,
    after: Option<Coverage>,
    /// Inputs that it began with, and those that it added.
    inputs: [usize; 2],
    findings: Vec<PathBuf>,
    places: Vec<String>,
}

/// Builds and runs the fuzzers and prints a table; fails if there is a finding.
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

/// Builds the fuzzers with the features of the tests, whose dependencies they share.
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

/// Runs one fuzzer for its time.
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
    // It fails where a seed is a finding, which the run below reports.
    let inited = inited.output().map_err(|source| Error::Start {
        command: workspace::shown(&inited),
        source,
    })?;
    let covered = log::of_corpus(&String::from_utf8_lossy(&inited.stderr));
    let path = logs.join(target.name).with_extension("log");
    let log = fs::File::create(&path).map_err(write(&path))?;
    let stdout = log.try_clone().map_err(write(&path))?;
    let mut command = Command::new(program);
    // In this mode a finding ends a child, not the run.
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
        // The log would be full of the traces of findings.
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

/// Files below a folder.
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

/// Inputs that libFuzzer has written for findings.
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
