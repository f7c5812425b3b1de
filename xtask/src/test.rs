//! `cargo xtask test`: every test of the workspace, by `cargo test` with the backends' features on.

use std::process::ExitCode;

use cargo_metadata::Metadata;

use crate::{error::Error, workspace};

/// The backends that run everywhere.
const CPU_FEATURES: [&str; 2] = ["flex", "ndarray"];
/// The backend that also runs on a software device.
const VULKAN_FEATURE: &str = "vulkan";

/// Arguments of `cargo xtask test`.
#[derive(Clone, Debug, clap::Args)]
pub struct TestArgs {
    /// Add the tests on Vulkan; they need a Vulkan device, and a software one (Debian: mesa-vulkan-drivers) will do.
    /// The environment's EMBERLM_TEST_VULKAN=1 says the same.
    #[arg(long)]
    vulkan: bool,
    /// Test only this package (may be repeated).
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
    let mut args = args.clone();
    args.vulkan |= asked_by_environment();
    command.args(cargo_arguments(&args, &workspace::metadata()?));
    eprintln!("running {}", workspace::shown(&command));
    let code = workspace::status(&mut command)?.code();
    // A signal has no code, and cargo's codes fit a byte.
    Ok(code
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}

/// The features that the whole workspace is tested with, on Vulkan where the environment asks for it.
pub fn workspace_features(metadata: &Metadata) -> Vec<&'static str> {
    let args = TestArgs {
        vulkan: asked_by_environment(),
        packages: Vec::new(),
        args: Vec::new(),
        harness: Vec::new(),
    };
    features(&args, metadata)
}

/// So that the continuous integration can call the very command that a reader of the README calls.
fn asked_by_environment() -> bool {
    std::env::var_os("EMBERLM_TEST_VULKAN").is_some_and(|value| value == "1")
}

fn cargo_arguments(args: &TestArgs, metadata: &Metadata) -> Vec<String> {
    let mut words = vec!["test".to_owned()];
    if args.packages.is_empty() {
        words.push("--workspace".to_owned());
    }
    words.extend(args.packages.iter().map(|name| format!("--package={name}")));
    let features = features(args, metadata);
    if !features.is_empty() {
        words.push(format!("--features={}", features.join(",")));
    }
    words.extend(args.args.iter().cloned());
    if !args.harness.is_empty() {
        words.push("--".to_owned());
        words.extend(args.harness.iter().cloned());
    }
    words
}

/// The wanted backends that the tested packages know: cargo refuses a feature that none of them has.
fn features(args: &TestArgs, metadata: &Metadata) -> Vec<&'static str> {
    let tested =
        |name: &str| args.packages.is_empty() || args.packages.iter().any(|wanted| wanted == name);
    let packages: Vec<_> = metadata
        .workspace_packages()
        .into_iter()
        .filter(|package| tested(package.name.as_str()))
        .collect();
    let known = |feature: &&str| {
        packages
            .iter()
            .any(|package| package.features.contains_key(*feature))
    };
    let wanted = CPU_FEATURES
        .into_iter()
        .chain(args.vulkan.then_some(VULKAN_FEATURE));
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

    fn words(line: &str) -> String {
        let typed = std::iter::once("test").chain(line.split_whitespace());
        let args = Wrapper::try_parse_from(typed)
            .unwrap_or_else(|error| panic!("{error}"))
            .test;
        cargo_arguments(&args, &workspace::metadata().unwrap()).join(" ")
    }

    #[test]
    fn the_whole_workspace_runs_on_both_cpu_backends() {
        assert_eq!(words(""), "test --workspace --features=flex,ndarray");
        assert_eq!(
            words("--vulkan"),
            "test --workspace --features=flex,ndarray,vulkan"
        );
    }

    #[test]
    fn further_arguments_reach_cargo_and_the_test_programs() {
        assert_eq!(
            words("--vulkan --tests vulkan -- --nocapture"),
            "test --workspace --features=flex,ndarray,vulkan --tests vulkan -- --nocapture"
        );
        assert_eq!(
            words("-- --ignored"),
            "test --workspace --features=flex,ndarray -- --ignored"
        );
    }

    #[test]
    fn a_package_gets_only_the_features_it_has() {
        assert_eq!(words("-p xtask lexer"), "test --package=xtask lexer");
        assert_eq!(
            words("-p emberlm-cli"),
            "test --package=emberlm-cli --features=flex,ndarray"
        );
    }
}
