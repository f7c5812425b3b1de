//! `cargo xtask bench kernels`: measures each kernel interleaved with its reference implementation, in one
//! process.

use std::process::Command;

use emberlm_system::measure::Comparison;

use super::programs::{OursArgs, Program, last_json};
use super::session::Session;
use crate::{error::Error, workspace};

/// Arguments of `cargo xtask bench kernels`.
#[derive(Debug, clap::Args)]
pub struct KernelsArgs {
    /// Only workloads and operations whose WORKLOAD/OPERATION contains NAME, such as pocket/ or
    /// linear_backward.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    #[command(flatten)]
    ours: OursArgs,
}

/// Builds the binary and runs it. It measures all rounds in one process.
pub fn run(args: &KernelsArgs, session: &mut Session) -> Result<(), Error> {
    let binary = args.ours.ready(Program::Bench, session)?;
    let mut command = Command::new(binary);
    command.args(["bench-kernels", "--backend", &args.ours.backend]);
    command.args(["--rounds", &session.rounds(7).to_string()]);
    if let Some(only) = &args.only {
        command.args(["--only", only]);
    }
    let output = last_json(&mut command, "comparisons")?;
    let read: Result<Vec<Comparison>, _> = serde_json::from_value(output["comparisons"].clone());
    let wrong = |_| Error::Measurement {
        command: workspace::shown(&command),
        field: "comparisons",
        output: output.to_string(),
    };
    session.record.comparisons.extend(read.map_err(wrong)?);
    Ok(())
}
