//! The workspace's metadata, and functions that run programs.

use std::process::{Command, ExitStatus, Output};
use std::{fs, path::Path};

use cargo_metadata::{Metadata, MetadataCommand};

use crate::error::Error;
pub use crate::error::shown;

/// Reads the workspace's packages without resolving dependencies, which is fast and needs no network.
pub fn metadata() -> Result<Metadata, Error> {
    Ok(MetadataCommand::new().no_deps().exec()?)
}

/// The cargo that runs this task.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a program in this terminal and waits for it.
pub fn status(command: &mut Command) -> Result<ExitStatus, Error> {
    command.status().map_err(Error::start(command))
}

/// Runs a command. Fails if the command fails.
pub fn success(command: &mut Command) -> Result<(), Error> {
    match status(command)? {
        status if status.success() => Ok(()),
        status => Err(Error::failed(command, status)),
    }
}

/// Runs a program and returns its stdout. Its stderr is printed in this terminal. Fails if the program fails.
pub fn stdout(command: &mut Command) -> Result<String, Error> {
    command.stderr(std::process::Stdio::inherit());
    let output = output(command)?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(Error::failed(command, output.status)),
    }
}

/// Runs a program and returns its exit status and output.
pub fn output(command: &mut Command) -> Result<Output, Error> {
    command.output().map_err(Error::start(command))
}

/// Creates an empty folder in place of one that may exist.
pub fn emptied(folder: &Path) -> Result<(), Error> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(Error::write(folder))?;
    }
    fs::create_dir_all(folder).map_err(Error::write(folder))
}
