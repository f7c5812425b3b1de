//! `cargo xtask card`: builds a binary for a backend and writes a report on a device with `emberlm doctor
//! --full`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::bench::programs::Program;
use crate::error::Error;
use crate::python::absolute;
use crate::workspace;

/// Arguments of `cargo xtask card`.
#[derive(Debug, clap::Args)]
pub struct CardArgs {
    /// The backend to build and run: cuda, vulkan, metal, rocm or wgpu.
    #[arg(long, value_name = "NAME")]
    backend: String,
    /// The number of the device in `emberlm devices`.
    #[arg(long, value_name = "N")]
    device: Option<usize>,
    /// The time limit of all checks [default: 10].
    #[arg(long, value_name = "N")]
    minutes: Option<f64>,
    /// The sizes of the models: small or full [default: small on a CPU, full on a GPU].
    #[arg(long)]
    size: Option<String>,
    /// The folder of the report.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// A Python with PyTorch.
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Run this binary instead of building one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// Builds and runs the binary. Returns the exit code of the report.
pub fn run(args: &CardArgs) -> Result<ExitCode, Error> {
    let binary = match &args.binary {
        Some(binary) => absolute(binary)?,
        None => build(args)?,
    };
    let status = workspace::status(&mut report(args, &binary))?;
    Ok(match status.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Builds the release binary with the backend and the CPU backend, which is the reference.
fn build(args: &CardArgs) -> Result<PathBuf, Error> {
    let mut command = workspace::cargo();
    command
        .args(["build", "--release", "--package=emberlm-cli"])
        .arg(format!("--features={}", args.backend));
    workspace::success(&mut command)?;
    Ok(Program::Emberlm.path(&workspace::metadata()?).into())
}

fn report(args: &CardArgs, binary: &Path) -> Command {
    let mut command = Command::new(binary);
    command.args(["doctor", "--full", "--backend", &args.backend]);
    let numbers = [
        ("--device", args.device.map(|number| number.to_string())),
        ("--minutes", args.minutes.map(|minutes| minutes.to_string())),
        ("--size", args.size.clone()),
    ];
    for (option, value) in numbers {
        if let Some(value) = value {
            command.args([option, &value]);
        }
    }
    for (option, path) in [("--out", &args.out), ("--python", &args.python)] {
        if let Some(path) = path {
            command.arg(option).arg(path);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: CardArgs,
    }

    #[test]
    fn options_are_handed_on() {
        let line = "card --backend vulkan --device 1 --minutes 2.5 --size small --out o --python p";
        let args = Line::parse_from(line.split(' ')).args;
        let command = report(&args, Path::new("emberlm"));
        assert_eq!(
            workspace::shown(&command),
            "emberlm doctor --full --backend vulkan --device 1 --minutes 2.5 --size small --out o --python p"
        );
        let args = Line::parse_from(["card", "--backend", "cuda"]).args;
        let command = report(&args, Path::new("emberlm"));
        assert_eq!(
            workspace::shown(&command),
            "emberlm doctor --full --backend cuda"
        );
    }
}
