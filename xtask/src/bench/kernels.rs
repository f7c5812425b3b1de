//! `cargo xtask bench kernels`: measures each kernel interleaved with its reference implementation, in one
//! process.

use std::{num::NonZero, path::Path, process::Command};

use super::programs::{OursArgs, Program};
use crate::{error::Error, workspace};

/// Arguments of `cargo xtask bench kernels`.
#[derive(Debug, clap::Args)]
pub struct KernelsArgs {
    /// Only workloads and operations whose WORKLOAD/OPERATION contains NAME, such as pocket/ or
    /// linear_backward.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Measurements of each operation; medians are printed.
    #[arg(long, default_value = "7")]
    rounds: NonZero<usize>,
    /// Print one line of JSON instead of the table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ours: OursArgs,
}

/// Builds the binary and runs it; the binary prints the results.
pub fn run(args: &KernelsArgs) -> Result<(), Error> {
    let metadata = workspace::metadata()?;
    let binary = args.ours.ready(Program::Bench, &metadata)?;
    workspace::success(&mut command(args, &binary))
}

fn command(args: &KernelsArgs, binary: &Path) -> Command {
    let mut command = Command::new(binary);
    command.args(["bench-kernels", "--backend", &args.ours.backend]);
    command.args(["--rounds", &args.rounds.to_string()]);
    if let Some(only) = &args.only {
        command.args(["--only", only]);
    }
    if args.json {
        command.arg("--json");
    }
    command
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Wrapper {
        #[command(flatten)]
        kernels: KernelsArgs,
    }

    #[test]
    fn options_reach_the_binary() {
        let typed = ["kernels", "--only", "rotary", "--rounds", "3", "--json"];
        let args = Wrapper::try_parse_from(typed).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            workspace::shown(&command(&args.kernels, Path::new("emberlm"))),
            "emberlm bench-kernels --backend flex --rounds 3 --only rotary --json"
        );
    }
}
