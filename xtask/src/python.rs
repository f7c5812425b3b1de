//! The Python of the tasks that run scripts: a given interpreter, or an environment in the target folder.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
};

use cargo_metadata::Metadata;

use crate::{error::Error, tidy, workspace};

/// The copy of the requirements in an environment. It is written last, so an incomplete environment is created
/// again.
const STAMP: &str = "emberlm-requirements.txt";

/// A Python environment in the target folder.
pub struct Environment<'a> {
    /// The name of the folder.
    pub name: &'static str,
    /// The requirements files, relative to the workspace's root.
    pub requirements: &'a [&'static str],
}

impl Environment<'_> {
    /// The environment's interpreter. Creates the environment if it does not exist or its requirements have
    /// changed, except if `offline` is true.
    pub fn python(&self, metadata: &Metadata, offline: bool) -> Result<PathBuf, Error> {
        let root = metadata.workspace_root.as_std_path();
        let folder = metadata.target_directory.join(self.name);
        let folder = folder.as_std_path();
        let python = folder.join(if cfg!(windows) {
            "Scripts/python.exe"
        } else {
            "bin/python"
        });
        let files: Vec<PathBuf> = self
            .requirements
            .iter()
            .map(|file| root.join(file))
            .collect();
        let wanted = files
            .iter()
            .map(|file| tidy::read(file))
            .collect::<Result<String, _>>()?;
        let stamp = folder.join(STAMP);
        let made = std::fs::read_to_string(&stamp).is_ok_and(|made_for| made_for == wanted);
        if made && python.is_file() {
            return Ok(python);
        }
        if offline {
            return Err(Error::Offline {
                folder: folder.to_owned(),
                packages: wanted.split_whitespace().collect::<Vec<_>>().join(", "),
            });
        }
        eprintln!(
            "making a Python environment in {}, with packages from pip's index",
            folder.display()
        );
        make(folder)?;
        announced(&mut install(&python, &files))?;
        std::fs::write(&stamp, wanted).map_err(Error::write(&stamp))?;
        Ok(python)
    }
}

/// The absolute path of an interpreter, for scripts that run in another folder.
pub fn absolute(python: &Path) -> Result<PathBuf, Error> {
    // A name without a folder is looked up in PATH.
    if python.components().count() == 1 {
        return Ok(python.to_owned());
    }
    std::path::absolute(python).map_err(Error::read(python))
}

/// Prints a command and runs it. Fails if the command fails.
pub fn announced(command: &mut Command) -> Result<(), Error> {
    eprintln!("running {}", workspace::shown(command));
    workspace::success(command)
}

/// Creates an empty environment.
fn make(folder: &Path) -> Result<(), Error> {
    let mut command = Command::new(if cfg!(windows) { "python" } else { "python3" });
    command.args(["-m", "venv", "--clear"]).arg(folder);
    announced(&mut command).map_err(|error| match error {
        Error::Start { command, source } if source.kind() == ErrorKind::NotFound => {
            Error::NoPython { command }
        }
        Error::Failed { command, status } => Error::NoVenv { command, status },
        other => other,
    })
}

fn install(python: &Path, requirements: &[PathBuf]) -> Command {
    let mut command = Command::new(python);
    command.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    for file in requirements {
        command.arg("-r").arg(file);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_is_found_from_the_root_too() {
        let found = |path| absolute(Path::new(path)).unwrap();
        assert_eq!(found("python3"), PathBuf::from("python3"));
        assert!(found("peer/bin/python").is_absolute());
    }

    #[test]
    fn without_the_network_an_environment_is_not_made() {
        let metadata = workspace::metadata().unwrap();
        let environment = Environment {
            name: "no-such-environment",
            requirements: &["xtask/peers/requirements.txt"],
        };
        let refused = environment.python(&metadata, true).unwrap_err().to_string();
        assert!(refused.contains("torch, numpy, transformers"), "{refused}");
        assert!(
            !metadata
                .target_directory
                .join("no-such-environment")
                .exists()
        );
    }
}
