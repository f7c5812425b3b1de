//! `cargo xtask build-times`: the distribution of a release build's time over groups of crates and single
//! crates.
//!
//! Map: `timings` parses cargo's timing report, `groups` sorts crates into groups, and `tables` formats the
//! result as Markdown.

mod groups;
mod tables;
mod timings;

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use tempfile::TempDir;

use crate::{error::Error, python::announced, workspace};
use timings::Timings;

/// The report's path in a target folder.
const REPORT: &str = "cargo-timings/cargo-timing.html";

/// Arguments of `cargo xtask build-times`.
#[derive(Debug, clap::Args)]
pub struct BuildTimesArgs {
    /// Also enable these features of emberlm-cli (repeatable, or separated by commas).
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    features: Vec<String>,
    /// Disable the default features, to measure one GPU backend: `--no-default-features --features cuda`.
    #[arg(long)]
    no_default_features: bool,
    /// Build in this folder, which must be empty or missing, and keep it. By default a temporary folder in the
    /// workspace's target folder is used and removed.
    #[arg(long, value_name = "DIR")]
    target_dir: Option<PathBuf>,
    /// Read this report of `cargo build --timings` instead of building.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["features", "no_default_features", "target_dir"]
    )]
    report: Option<PathBuf>,
}

/// Builds, or reads an existing report, and prints the tables.
pub fn run(args: &BuildTimesArgs) -> Result<ExitCode, Error> {
    let timings = match (&args.report, &args.target_dir) {
        (Some(report), _) => Timings::read(report)?,
        (None, Some(folder)) => {
            require_empty(folder)?;
            measure(args, folder)?
        }
        (None, None) => measure(args, temporary_folder()?.path())?,
    };
    print!("{}", tables::markdown(&timings));
    Ok(ExitCode::SUCCESS)
}

/// Builds the release binary in an empty target folder and reads cargo's report.
fn measure(args: &BuildTimesArgs, target: &Path) -> Result<Timings, Error> {
    announced(&mut build_command(args, target))?;
    Timings::read(&target.join(REPORT))
}

fn build_command(args: &BuildTimesArgs, target: &Path) -> Command {
    let mut command = workspace::cargo();
    command.args(["build", "--release", "--locked", "-p", "emberlm-cli"]);
    command.arg("--timings");
    if args.no_default_features {
        command.arg("--no-default-features");
    }
    if !args.features.is_empty() {
        command.arg(format!("--features={}", args.features.join(",")));
    }
    command.arg("--target-dir").arg(target);
    command
}

/// Creates a folder in the workspace's target folder. The operating system's temporary folder may be too small
/// for a build.
fn temporary_folder() -> Result<TempDir, Error> {
    let target = workspace::metadata()?.target_directory.into_std_path_buf();
    let write_error = |source| Error::Write {
        path: target.clone(),
        source,
    };
    std::fs::create_dir_all(&target).map_err(write_error)?;
    tempfile::Builder::new()
        .prefix("build-times-")
        .tempdir_in(&target)
        .map_err(write_error)
}

/// Requires an empty folder: crates that are already built would be missing from the report.
fn require_empty(folder: &Path) -> Result<(), Error> {
    let mut entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            return Err(Error::Read {
                path: folder.to_owned(),
                source,
            });
        }
    };
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(Error::NotEmpty {
            folder: folder.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Wrapper {
        #[command(flatten)]
        args: BuildTimesArgs,
    }

    fn parsed(line: &str) -> Result<BuildTimesArgs, clap::Error> {
        let typed = std::iter::once("build-times").chain(line.split_whitespace());
        Wrapper::try_parse_from(typed).map(|wrapper| wrapper.args)
    }

    fn built(line: &str) -> String {
        let command = build_command(&parsed(line).unwrap(), Path::new("t"));
        let words: Vec<_> = command.get_args().map(|it| it.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn the_default_release_binary_is_built_with_a_timing_report() {
        assert_eq!(
            built(""),
            "build --release --locked -p emberlm-cli --timings --target-dir t"
        );
    }

    #[test]
    fn features_are_passed_to_cargo() {
        assert_eq!(
            built("--no-default-features --features cuda,flex --features vulkan"),
            "build --release --locked -p emberlm-cli --timings --no-default-features --features=cuda,flex,vulkan \
             --target-dir t"
        );
    }

    #[test]
    fn a_report_excludes_the_options_of_a_build() {
        assert!(parsed("--report r.html").is_ok());
        for option in ["--features cuda", "--no-default-features", "--target-dir t"] {
            let error = parsed(&format!("--report r.html {option}")).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict);
        }
    }

    #[test]
    fn a_target_folder_must_be_empty_or_missing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(require_empty(folder.path()).is_ok());
        assert!(require_empty(&folder.path().join("missing")).is_ok());
        std::fs::write(folder.path().join("file"), "").unwrap();
        let message = require_empty(folder.path()).unwrap_err().to_string();
        assert!(
            message.contains(&folder.path().display().to_string()),
            "{message}"
        );
        assert!(message.contains("hint: "), "{message}");
    }
}
