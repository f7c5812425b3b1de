//! `cargo xtask test`: runs every test of the workspace with `cargo test` and the backends' features, or with
//! `--quick` only the unit tests, or with `--mpi` the training on several ranks.

use std::process::ExitCode;

use cargo_metadata::{Metadata, Package, Target};

use crate::{error::Error, workspace};

/// The backends that run on every machine.
const CPU_FEATURES: [&str; 2] = ["flex", "ndarray"];
/// A backend that can also run on a software device.
const VULKAN_FEATURE: &str = "vulkan";
/// The feature of training on several ranks over MPI.
const MPI: &str = "mpi";

/// The target of the tests of training on several ranks, and the variable that names their launcher.
const RANKS: &str = "ranks";
const LAUNCHER: (&str, &str) = ("EMBERLM_TEST_LAUNCHER", "mpirun");

/// Arguments of `cargo xtask test`.
#[derive(Clone, Debug, clap::Args)]
pub struct TestArgs {
    /// Also run the tests on Vulkan. They need a Vulkan device; a software device (Debian: mesa-vulkan-drivers)
    /// is enough. EMBERLM_TEST_VULKAN=1 in the environment has the same effect.
    #[arg(long)]
    vulkan: bool,
    /// Run only the unit tests of the libraries and programs: less than a minute once they are built.
    ///
    /// Leaves out every test program in the packages' `tests` folders: the end-to-end tests of the command line (`cli`),
    /// the kernels' `cpu`, `gradients` and `speed`, the model's `parity`, the bounded fuzz tests, and all others. Add
    /// `--test NAME` to run one of them too.
    ///
    /// Leaves out the documentation's examples, and the tests on Vulkan even if EMBERLM_TEST_VULKAN=1 is set.
    ///
    /// Dependencies have the same features as in a full run, so that they are built only once.
    #[arg(long, conflicts_with = "vulkan")]
    quick: bool,
    /// Run the tests of training on several ranks over MPI, and no others. They need an MPI library with `mpirun`, and libclang
    /// to build (Debian: libopenmpi-dev, openmpi-bin, libclang-dev).
    ///
    /// With EMBERLM_TEST_MPI=1 in the environment, every run has the feature `mpi`, so that nothing is built for this one.
    #[arg(long, conflicts_with_all = ["quick", "packages"])]
    mpi: bool,
    /// Test only this package; repeatable.
    #[arg(short, long = "package", value_name = "NAME")]
    packages: Vec<String>,
    /// Further arguments of `cargo test`: part of a test's name, `--release`, `--test FILE`, …
    #[arg(value_name = "ARGS", allow_hyphen_values = true)]
    args: Vec<String>,
    /// Arguments of the test programs, such as `--nocapture`.
    #[arg(last = true, value_name = "TEST ARGS")]
    harness: Vec<String>,
}

/// Runs the tests and returns cargo's own exit code.
pub fn run(args: &TestArgs) -> Result<ExitCode, Error> {
    let mut command = workspace::cargo();
    let environment = Environment::read();
    command.args(cargo_arguments(args, environment, &workspace::metadata()?));
    if args.mpi {
        command.env(LAUNCHER.0, LAUNCHER.1);
    }
    eprintln!("running {}", workspace::shown(&command));
    let code = workspace::status(&mut command)?.code();
    // A process that was ended by a signal has no code, and cargo's codes fit into a byte.
    Ok(code
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}

/// The features with which the whole workspace is tested, including those that the environment requests.
pub fn workspace_features(metadata: &Metadata) -> Vec<&'static str> {
    let args = TestArgs {
        vulkan: false,
        quick: false,
        mpi: false,
        packages: Vec::new(),
        args: Vec::new(),
        harness: Vec::new(),
    };
    features(&args, Environment::read(), metadata)
}

/// The features that the environment requests. The continuous integration sets them, so that it can use the command of the
/// documentation.
#[derive(Clone, Copy, Debug, Default)]
struct Environment {
    vulkan: bool,
    mpi: bool,
}

impl Environment {
    fn read() -> Self {
        let asks = |name: &str| std::env::var_os(name).is_some_and(|value| value == "1");
        Self {
            vulkan: asks("EMBERLM_TEST_VULKAN"),
            mpi: asks("EMBERLM_TEST_MPI"),
        }
    }
}

impl TestArgs {
    /// Returns true if the tests of a package are selected.
    fn selects(&self, package: &Package) -> bool {
        self.packages.is_empty()
            || self
                .packages
                .iter()
                .any(|wanted| wanted == package.name.as_str())
    }
}

fn cargo_arguments(args: &TestArgs, environment: Environment, metadata: &Metadata) -> Vec<String> {
    let mut words = vec!["test".to_owned()];
    if args.packages.is_empty() {
        words.push("--workspace".to_owned());
    }
    words.extend(args.packages.iter().map(|name| format!("--package={name}")));
    let features = features(args, environment, metadata);
    if !features.is_empty() {
        words.push(format!("--features={}", features.join(",")));
    }
    if args.quick {
        words.extend(unit_test_targets(args, metadata).map(str::to_owned));
    }
    if args.mpi {
        words.extend(["--test", RANKS].map(str::to_owned));
    }
    words.extend(args.args.iter().cloned());
    if !args.harness.is_empty() {
        words.push("--".to_owned());
        words.extend(args.harness.iter().cloned());
    }
    words
}

/// The options that select unit tests. Cargo rejects `--lib` if no selected package has a library.
fn unit_test_targets(args: &TestArgs, metadata: &Metadata) -> impl Iterator<Item = &'static str> {
    let packages = selected_packages(args, metadata);
    let targets = || packages.iter().flat_map(|package| &package.targets);
    let library = targets().any(Target::is_lib).then_some("--lib");
    let programs = targets().any(Target::is_bin).then_some("--bins");
    library.into_iter().chain(programs)
}

fn selected_packages<'a>(args: &TestArgs, metadata: &'a Metadata) -> Vec<&'a Package> {
    let mut packages = metadata.workspace_packages();
    packages.retain(|package| args.selects(package));
    packages
}

/// The features that the tested packages have, of those that the tests need. Cargo rejects a feature that none of them has.
fn features(args: &TestArgs, environment: Environment, metadata: &Metadata) -> Vec<&'static str> {
    let packages = selected_packages(args, metadata);
    let known = |feature: &&str| {
        packages
            .iter()
            .any(|package| package.features.contains_key(*feature))
    };
    let vulkan = args.vulkan || environment.vulkan && !args.quick;
    let mpi = args.mpi || environment.mpi && !args.quick;
    let wanted = CPU_FEATURES
        .into_iter()
        .chain(vulkan.then_some(VULKAN_FEATURE))
        .chain(mpi.then_some(MPI));
    wanted.filter(known).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Wrapper {
        #[command(flatten)]
        test: TestArgs,
    }

    fn parsed(line: &str) -> Result<TestArgs, clap::Error> {
        let typed = std::iter::once("test").chain(line.split_whitespace());
        Wrapper::try_parse_from(typed).map(|wrapper| wrapper.test)
    }

    fn command_line(args: &TestArgs, environment: Environment) -> String {
        cargo_arguments(args, environment, &workspace::metadata().unwrap()).join(" ")
    }

    #[test]
    fn arguments_become_those_of_cargo() {
        for (typed, expected) in [
            ("", "--workspace --features=flex,ndarray"),
            ("--vulkan", "--workspace --features=flex,ndarray,vulkan"),
            (
                "--vulkan --tests vulkan -- --nocapture",
                "--workspace --features=flex,ndarray,vulkan --tests vulkan -- --nocapture",
            ),
            (
                "-- --ignored",
                "--workspace --features=flex,ndarray -- --ignored",
            ),
            // A package gets only the features that it has.
            ("-p xtask lexer", "--package=xtask lexer"),
            (
                "-p emberlm-cli",
                "--package=emberlm-cli --features=flex,ndarray",
            ),
            // A quick run has the features of a full run, and only the kinds of targets that the packages have.
            (
                "--quick",
                "--workspace --features=flex,ndarray --lib --bins",
            ),
            (
                "--quick --test sampler -- --nocapture",
                "--workspace --features=flex,ndarray --lib --bins --test sampler -- --nocapture",
            ),
            ("--quick -p emberlm-data", "--package=emberlm-data --lib"),
            ("--quick -p xtask", "--package=xtask --bins"),
            (
                "--quick -p xtask -p emberlm-data lexer",
                "--package=xtask --package=emberlm-data --lib --bins lexer",
            ),
            (
                "--mpi",
                "--workspace --features=flex,ndarray,mpi --test ranks",
            ),
            (
                "--mpi --vulkan killed",
                "--workspace --features=flex,ndarray,vulkan,mpi --test ranks killed",
            ),
        ] {
            let args = parsed(typed).unwrap_or_else(|error| panic!("{error}"));
            let line = command_line(&args, Environment::default());
            assert_eq!(line, format!("test {expected}"), "{typed}");
        }
    }

    #[test]
    fn the_environment_adds_features_except_to_a_quick_run() {
        let error = parsed("--quick --vulkan").unwrap_err();
        assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict);
        let environment = Environment {
            vulkan: true,
            mpi: true,
        };
        for (typed, expected) in [
            (
                "--quick",
                "--workspace --features=flex,ndarray --lib --bins",
            ),
            ("", "--workspace --features=flex,ndarray,vulkan,mpi"),
            // The same features: nothing is built again.
            (
                "--mpi",
                "--workspace --features=flex,ndarray,vulkan,mpi --test ranks",
            ),
        ] {
            let line = command_line(&parsed(typed).unwrap(), environment);
            assert_eq!(line, format!("test {expected}"), "{typed}");
        }
    }
}
