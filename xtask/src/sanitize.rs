//! `cargo xtask sanitize`: runs the tests of the kernels' `cpu`, which has all unsafe code of the workspace,
//! under AddressSanitizer, and as on CPUs with fewer features: with AVX2 under valgrind, without AVX under
//! qemu.
//!
//! The kernels are compiled without Burn, which would take most of the time and has no unsafe code of the
//! workspace.

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use crate::{error::Error, workspace};

/// The emulators that run the tests as if on a CPU with fewer features.
const EMULATORS: [Emulator; 2] = [
    Emulator {
        what: "AVX2, every access checked",
        program: "valgrind",
        // valgrind hides AVX-512. It runs one thread at a time, so it needs fair scheduling and does not
        // benefit from more threads.
        args: &["--quiet", "--error-exitcode=1", "--fair-sched=yes"],
        threads: Some("1"),
    },
    Emulator {
        what: "no AVX: the plain path",
        program: "qemu-x86_64",
        args: &["-cpu", "qemu64"],
        threads: None,
    },
];

/// Parts of the names of tests that a short run skips. They take minutes under valgrind, and smaller tests
/// cover the same code.
const SLOW: [&str; 3] = ["long_", "large_", "threads"];

/// Cases per property under valgrind and qemu.
const CASES: &str = "2";

/// Arguments of `cargo xtask sanitize`.
#[derive(Clone, Debug, clap::Args)]
pub struct SanitizeArgs {
    /// Also run the tests that take minutes under valgrind and qemu.
    #[arg(long)]
    thorough: bool,
    /// Run this build of the tests under valgrind and qemu instead of building one, for example
    /// target/debug/deps/cpu-… of `cargo xtask test`.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

struct Emulator {
    what: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    /// The number of rayon's threads [default: the number of cores].
    threads: Option<&'static str>,
}

/// Runs the tests under each available checker. Stops at the first failure.
pub fn run(args: &SanitizeArgs) -> Result<ExitCode, Error> {
    let folder = workspace::metadata()?.target_directory.join("sanitize");
    let host = host()?;
    let tests = || tests(&host, folder.as_std_path());

    eprintln!("== AddressSanitizer: with this CPU's features");
    workspace::success(
        tests()
            .env("RUSTFLAGS", "-Zsanitizer=address")
            // A rayon pool does not wait for the end of its threads, whose memory is then reported as leaked.
            .env("ASAN_OPTIONS", "detect_leaks=0"),
    )?;

    if !host.starts_with("x86_64-") {
        eprintln!("== not x86-64: AVX2 and the path without AVX are not run");
        return Ok(ExitCode::SUCCESS);
    }
    let emulators = EMULATORS.iter().filter(|emulator| is_available(emulator));
    let emulators: Vec<_> = emulators.collect();
    if emulators.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let program = match &args.program {
        Some(program) => program.clone(),
        None => built(tests().args(["--no-run", "--message-format=json"]))?,
    };
    for emulator in emulators {
        eprintln!("== {}: {}", emulator.program, emulator.what);
        workspace::success(&mut command(emulator, &program, args.thorough))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The command that builds and runs the tests without Burn, in a separate folder because the flags differ from
/// the workspace's builds.
fn tests(host: &str, folder: &Path) -> Command {
    let mut command = workspace::cargo();
    command
        .args(["test", "--package=emberlm-kernels", "--no-default-features"])
        // With a target, build scripts and procedural macros are compiled once, without the flags.
        .args(["--test=cpu", "--target", host])
        .env("CARGO_TARGET_DIR", folder)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        // The stable compiler has the sanitizer's runtime, but requires this variable for the flag. Build
        // scripts read it too, so it is also set for the build without the flag.
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

/// The command that runs the tests under a checker.
fn command(emulator: &Emulator, program: &Path, thorough: bool) -> Command {
    let mut command = Command::new(emulator.program);
    command.args(emulator.args).arg(program);
    command.env("PROPTEST_CASES", CASES);
    if !thorough {
        command.args(SLOW.iter().flat_map(|slow| ["--skip", slow]));
    }
    if let Some(threads) = emulator.threads {
        command.arg("--test-threads=1");
        command.env("RAYON_NUM_THREADS", threads);
    }
    command
}

/// Returns true if a checker is available. Otherwise prints the reason.
fn is_available(emulator: &Emulator) -> bool {
    let mut asked = Command::new(emulator.program);
    asked.arg("--version").stdout(Stdio::null());
    let there = asked.status().is_ok_and(|status| status.success());
    if !there {
        eprintln!(
            "== no `{}` here: not run is {}",
            emulator.program, emulator.what
        );
    }
    there
}

/// The target triple of this machine.
fn host() -> Result<String, Error> {
    let mut command = workspace::cargo();
    let version = workspace::stdout(command.arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Error::Unnamed {
        command: workspace::shown(&command),
        what: "target",
    })
}
