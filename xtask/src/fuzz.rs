//! `cargo xtask fuzz`: runs the fuzzers of `fuzz/` with libFuzzer on the stable compiler.
//!
//! Map: `targets` lists the fuzzers with their seeds and limits; `slice` runs one; `log` parses libFuzzer's output;
//! `corpus` is the corpus in the repository, `merge` adds to it, and `record` has the figures of the slices that were
//! kept.
//!
//! The crate `libfuzzer-sys` contains libFuzzer's C++ source. A pass of the stable compiler adds the coverage
//! counters that libFuzzer reads (`fuzz/instrument.sh`). It instruments the workspace's crates only, so the
//! dependencies are shared with the tests' build. Corpora, which later runs continue from, logs and inputs with
//! findings are in `target/fuzz`. `--keep` merges a corpus into the repository's.

mod corpus;
mod log;
mod merge;
mod record;
mod slice;
mod targets;

use std::{path::Path, process::ExitCode};

use cargo_metadata::Metadata;

use self::{
    record::Record,
    slice::{Fuzzer, Slice},
    targets::Target,
};
use crate::{error::Error, test, workspace};

/// The compiler wrapper that adds coverage counters to the workspace's crates.
const WRAPPER: &str = "fuzz/instrument.sh";

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
    /// Merge the new inputs into the corpus of the repository (`fuzz/corpus`), and add the figures of this run to its
    /// record (`fuzz/record.toml`).
    #[arg(long)]
    keep: bool,
}

/// Builds and runs the fuzzers and prints a table. Fails if there is a finding.
pub fn run(args: &FuzzArgs) -> Result<ExitCode, Error> {
    let metadata = workspace::metadata()?;
    let chosen = targets::chosen(&metadata, &args.targets)?;
    let root = metadata.workspace_root.as_std_path();
    let folder = metadata.target_directory.join("fuzz").into_std_path_buf();
    build(&metadata, &chosen)?;
    let programs = metadata.target_directory.join("debug");
    let mut slices = Vec::new();
    for target in chosen {
        let program = programs.join(&target.name).into_std_path_buf();
        let fuzzer = Fuzzer::new(target, program, root, &folder)?;
        let slice = fuzzer.run(args.jobs, args.seconds)?;
        eprintln!("{}", slice.row());
        if args.keep {
            keep(&fuzzer, &slice, root, &folder)?;
        }
        slices.push(slice);
    }
    let rows = slices.iter().map(|slice| format!("\n{}", slice.row()));
    println!("{}{}", slice::HEAD, rows.collect::<String>());
    let mut found = false;
    for slice in &slices {
        for place in &slice.places {
            println!("{}: {place}", slice.target.name);
        }
        for path in &slice.findings {
            found = true;
            let program = programs.join(&slice.target.name);
            println!("reproduce: {program} {}", path.display());
        }
    }
    Ok(match found && !args.keep_going {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// Merges the inputs that a fuzzer has found into the corpus of the repository, and records a slice.
fn keep(fuzzer: &Fuzzer, slice: &Slice, root: &Path, folder: &Path) -> Result<(), Error> {
    let scratch = folder.join("merge").join(&fuzzer.target.name);
    let change = merge::merge(fuzzer, root, &scratch)?;
    fuzzer.unpack(root)?;
    let mut record = Record::read(root)?;
    record.add(slice, fuzzer.coverages()?);
    record.write(root)?;
    eprintln!("{}: {change}", fuzzer.target.name);
    Ok(())
}

/// Builds the fuzzers with the features of the tests, so that they share dependencies.
fn build(metadata: &Metadata, chosen: &[Target]) -> Result<(), Error> {
    let mut features = test::workspace_features(metadata);
    features.push("emberlm-fuzz/libfuzzer");
    let mut command = workspace::cargo();
    command
        .args(["build", "--workspace", "--features", &features.join(",")])
        .args(chosen.iter().flat_map(|target| ["--bin", &target.name]))
        .env(
            "RUSTC_WORKSPACE_WRAPPER",
            metadata.workspace_root.join(WRAPPER),
        );
    workspace::success(&mut command)
}
