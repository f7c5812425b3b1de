//! `cargo xtask sanitize`: the tests of the kernels' `cpu`, where all of the workspace's unsafe code is, under
//! AddressSanitizer, and on CPUs with fewer features: under valgrind with AVX2, under qemu without AVX.
//!
//! The kernels are compiled without Burn, which would take most of the time and has nothing to show here.

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use crate::{error::Error, workspace};

/// The emulator that runs the tests as if on a lesser CPU.
const PROCESSORS: [Processor; 2] = [
    Processor {
        what: "AVX2, every access checked",
        program: "valgrind",
        // It hides AVX-512, runs one thread at a time, and so needs to be fair and has no use for more.
        args: &["--quiet", "--error-exitcode=1", "--fair-sched=yes"],
        threads: Some("1"),
    },
    Processor {
        what: "no AVX: the plain path",
        program: "qemu-x86_64",
        args: &["-cpu", "qemu64"],
        threads: None,
    },
];

/// Parts of names of tests that a short run leaves out: they take minutes under valgrind, and their small likes go through the
/// same code.
const SLOW: [&str; 3] = ["long_", "large_", "threads"];

/// Cases of each property under valgrind and qemu.
const CASES: &str = "2";

/// Arguments of `cargo xtask sanitize`.
#[derive(Clone, Debug, clap::Args)]
pub struct SanitizeArgs {
    /// Run the tests that take minutes under valgrind and qemu there too.
    #[arg(long)]
    thorough: bool,
    /// Run this build of the tests under valgrind and qemu, such as `cargo xtask test` leaves in target/debug/deps/cpu-…,
    /// in place of making one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

struct Processor {
    what: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    /// The threads of rayon's pool, if not as many as the machine has.
    threads: Option<&'static str>,
}

/// Runs the tests under each checker that is there; fails with the first that fails.
pub fn run(args: &SanitizeArgs) -> Result<ExitCode, Error> {
    let folder = workspace::metadata()?.target_directory.join("sanitize");
    let host = host()?;
    let tests = || tests(&host, folder.as_std_path());

    eprintln!("== AddressSanitizer: with this CPU's features");
    workspace::success(
        tests()
            .env("RUSTFLAGS", "-Zsanitizer=address")
            // A pool of rayon's does not wait for the end of its threads, whose memory then looks lost.
            .env("ASAN_OPTIONS", "detect_leaks=0"),
    )?;

    if !host.starts_with("x86_64-") {
        eprintln!("== not x86-64: AVX2 and the path without AVX are not run");
        return Ok(ExitCode::SUCCESS);
    }
    let processors = PROCESSORS.iter().filter(|processor| is_there(processor));
    let processors: Vec<_> = processors.collect();
    if processors.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let program = match &args.program {
        Some(program) => program.clone(),
        None => built(tests().args(["--no-run", "--message-format=json"]))?,
    };
    for processor in processors {
        eprintln!("== {}: {}", processor.program, processor.what);
        workspace::success(&mut command(processor, &program, args.thorough))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds and runs the tests without Burn, apart from the workspace's own builds, whose flags differ.
fn tests(host: &str, folder: &Path) -> Command {
    let mut command = workspace::cargo();
    command
        .args(["test", "--package=emberlm-kernels", "--no-default-features"])
        // With a target, what runs while compiling is compiled once, without the flags.
        .args(["--test=cpu", "--target", host])
        .env("CARGO_TARGET_DIR", folder)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        // A stable compiler has the sanitizer's runtime, but takes the flag only so. Build scripts look at it, so that it is
        // set for the build without the flag too.
        .env("RUSTC_BOOTSTRAP", "1");
    command
}

/// The program that cargo's messages name.
fn built(command: &mut Command) -> Result<PathBuf, Error> {
    let messages = workspace::stdout(command)?;
    let mut executables = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message["executable"].as_str()?))
    });
    executables.next().ok_or_else(|| Error::Unnamed {
        command: workspace::shown(command),
        what: "program",
    })
}

/// The tests under a checker.
fn command(processor: &Processor, program: &Path, thorough: bool) -> Command {
    let mut command = Command::new(processor.program);
    command.args(processor.args).arg(program);
    command.env("PROPTEST_CASES", CASES);
    if !thorough {
        command.args(SLOW.iter().flat_map(|slow| ["--skip", slow]));
    }
    if let Some(threads) = processor.threads {
        command.arg("--test-threads=1");
        command.env("RAYON_NUM_THREADS", threads);
    }
    command
}

/// Returns true if a checker can be run; prints the reason if not.
fn is_there(processor: &Processor) -> bool {
    let mut asked = Command::new(processor.program);
    asked.arg("--version").stdout(Stdio::null());
    let there = asked.status().is_ok_and(|status| status.success());
    if !there {
        eprintln!(
            "== no `{}` here: not run is {}",
            processor.program, processor.what
        );
    }
    there
}

/// The name of this machine's target.
fn host() -> Result<String, Error> {
    let mut command = workspace::cargo();
    let version = workspace::stdout(command.arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Error::Unnamed {
        command: workspace::shown(&command),
        what: "target",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_leaves_out_what_is_slow() {
        let words = |thorough| {
            let program = Path::new("cpu");
            workspace::shown(&command(&PROCESSORS[1], program, thorough))
        };
        assert_eq!(words(true), "qemu-x86_64 -cpu qemu64 cpu");
        assert_eq!(
            words(false),
            "qemu-x86_64 -cpu qemu64 cpu --skip long_ --skip large_ --skip threads"
        );
    }

    #[test]
    fn the_kernels_are_compiled_without_burn() {
        let words = workspace::shown(&tests("here", Path::new("target/sanitize")));
        assert!(words.ends_with(
            "test --package=emberlm-kernels --no-default-features --test=cpu --target here"
        ));
        assert!(host().unwrap().contains('-'));
    }
}
