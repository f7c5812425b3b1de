//! The workspace's metadata, and running programs.

use std::process::{Command, ExitStatus};

use cargo_metadata::{Metadata, MetadataCommand};

use crate::error::Error;

/// Reads the workspace's own packages; dependencies are not resolved, so this needs no network and no time.
pub fn metadata() -> Result<Metadata, Error> {
    Ok(MetadataCommand::new().no_deps().exec()?)
}

/// The cargo that runs this task.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a program with this terminal and waits for it.
pub fn status(command: &mut Command) -> Result<ExitStatus, Error> {
    command.status().map_err(|source| Error::Start {
        command: shown(command),
        source,
    })
}

/// Runs a command, which must succeed.
pub fn success(command: &mut Command) -> Result<(), Error> {
    let status = status(command)?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Failed {
        command: shown(command),
        status,
    })
}

/// Runs a program to success and returns its stdout; its stderr goes to this terminal.
pub fn stdout(command: &mut Command) -> Result<String, Error> {
    command.stderr(std::process::Stdio::inherit());
    let output = command.output().map_err(|source| Error::Start {
        command: shown(command),
        source,
    })?;
    if !output.status.success() {
        return Err(Error::Failed {
            command: shown(command),
            status: output.status,
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command as one would type it, for messages.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
