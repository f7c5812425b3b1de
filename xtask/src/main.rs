//! The project's own tasks. `cargo xtask --help` lists them.
//!
//! Map: one file per task. `workspace` runs programs and reads the workspace's metadata, `python` runs scripts,
//! `served` starts the real server as a process, and `error` has the errors.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod attack;
mod audit;
mod bench;
mod clients;
mod containers;
mod error;
mod fixtures;
mod fuzz;
mod node;
mod python;
mod reference;
mod sanitize;
mod served;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's own tasks.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run every test of the workspace on the CPU backends.
    Test(test::TestArgs),
    /// Run the kernels' tests under memory checkers, and as on CPUs with fewer features than this one.
    Sanitize(sanitize::SanitizeArgs),
    /// Check the rules of docs/architecture.md that the compiler does not check.
    Tidy,
    /// Attack a real server on this machine, together with well-behaved clients.
    Attack(attack::AttackArgs),
    /// Check licences, sources and versions of the dependencies. `cargo deny check` also checks advisories.
    Audit,
    /// Measure speed and memory.
    Bench(bench::BenchArgs),
    /// Regenerate the test fixtures with PyTorch and transformers, and show which files changed.
    Fixtures(fixtures::FixturesArgs),
    /// Write the generated pages of docs/reference.
    Reference(reference::ReferenceArgs),
    /// Run the fuzzers, and print their executions, coverage and findings.
    Fuzz(fuzz::FuzzArgs),
    /// Test the real server with Python's openai, schemathesis, a browser, and a storm of concurrent clients.
    TestClients(clients::ClientsArgs),
    /// Check the container files with hadolint.
    LintContainers(containers::ContainersArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Test(args) => test::run(&args),
        Task::Sanitize(args) => sanitize::run(&args),
        Task::Tidy => tidy::run(),
        Task::Attack(args) => attack::run(&args),
        Task::Audit => audit::run(),
        Task::Bench(args) => bench::run(&args),
        Task::Fixtures(args) => fixtures::run(&args),
        Task::Reference(args) => reference::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::TestClients(args) => clients::run(&args),
        Task::LintContainers(args) => containers::run(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}
