//! The packages of the tasks that run scripts in JavaScript: a folder in the target folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use cargo_metadata::Metadata;

use crate::{error::Error, python::announced, tidy};

/// The list of packages with their versions.
const PACKAGES: &str = "package.json";

/// Scripts in JavaScript with the packages that they import.
pub struct Scripts {
    /// The name of the folder with the packages.
    pub name: &'static str,
    /// The folder with the scripts and their `package.json`, relative to the workspace's root.
    pub folder: &'static str,
}

impl Scripts {
    /// Installs the packages, unless they are there, and copies a script to them: Node looks for packages beside the script.
    ///
    /// # Errors
    /// There is no `npm`, or a package is not available.
    pub fn ready(&self, script: &str, metadata: &Metadata) -> Result<PathBuf, Error> {
        let source = metadata.workspace_root.join(self.folder);
        let folder = metadata.target_directory.join(self.name);
        let folder = folder.as_std_path();
        let wanted = tidy::read(source.join(PACKAGES).as_std_path())?;
        let stamp = folder.join(PACKAGES);
        let is_made = fs::read_to_string(&stamp).is_ok_and(|made_for| made_for == wanted);
        if !is_made || !folder.join("node_modules").is_dir() {
            fs::create_dir_all(folder).map_err(Error::write(folder))?;
            write(&stamp, &wanted)?;
            let mut install = Command::new(if cfg!(windows) { "npm.cmd" } else { "npm" });
            install.args(["install", "--no-audit", "--no-fund"]);
            let installed = announced(install.current_dir(folder));
            // An incomplete folder is made again.
            if installed.is_err() {
                let _ = fs::remove_file(&stamp);
            }
            installed?;
        }
        let copy = folder.join(script);
        write(&copy, &tidy::read(source.join(script).as_std_path())?)?;
        Ok(copy)
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(Error::write(path))
}
