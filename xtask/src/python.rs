//! Python for the tasks that run scripts: one that was named, or an environment of the task's own in the target folder.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
};

use cargo_metadata::Metadata;

use crate::{error::Error, workspace};

/// The record of an environment's purpose, within it; written last, so that an incomplete one is made again.
const STAMP: &str = "emberlm-requirements.txt";

/// An environment in the target folder.
pub struct Environment<'a> {
    /// Its folder's name.
    pub name: &'static str,
    /// The files that say what is installed, from the workspace's root.
    pub requirements: &'a [&'static str],
}

impl Environment<'_> {
    /// Its Python; the environment is made, or made again where the requirements have changed, unless `offline`.
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
            .map(|file| read(file))
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
        std::fs::write(&stamp, wanted).map_err(|source| Error::Write {
            path: stamp,
            source,
        })?;
        Ok(python)
    }
}

/// A Python that was named, for scripts that run in another folder than this task does.
pub fn absolute(python: &Path) -> Result<PathBuf, Error> {
    // A name without a folder is searched in PATH.
    if python.components().count() == 1 {
        return Ok(python.to_owned());
    }
    std::path::absolute(python).map_err(|source| Error::Read {
        path: python.to_owned(),
        source,
    })
}

/// Says what is run, and runs it to success.
pub fn announced(command: &mut Command) -> Result<(), Error> {
    eprintln!("running {}", workspace::shown(command));
    workspace::success(command)
}

/// An empty environment.
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

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })
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
