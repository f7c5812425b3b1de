//! `cargo xtask tidy`: the rules of docs/architecture.md that the compiler does not check. It also runs as a test.
//!
//! Map: `layers` (who may depend on whom, from `cargo metadata`), `manifests` (the shared lints), `sources` (one file
//! at a time: unsafe code, length, families' names) reading Rust through `lexer`.

mod layers;
mod lexer;
mod manifests;
mod sources;

use std::{
    fmt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::{error::Error, workspace};

/// One broken rule, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the workspace's root, with forward slashes.
    file: String,
    /// The line, counted from 1.
    line: usize,
    /// The rule's name.
    rule: &'static str,
    /// What the rule asks, and what was found.
    message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: [{}] {}",
            self.file, self.line, self.rule, self.message
        )
    }
}

/// Prints every broken rule; fails if there is one.
pub fn run() -> Result<ExitCode, Error> {
    let findings = check()?;
    for finding in &findings {
        println!("{finding}");
    }
    eprintln!("tidy: {} finding(s)", findings.len());
    Ok(if findings.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Checks the whole workspace.
pub fn check() -> Result<Vec<Finding>, Error> {
    let metadata = workspace::metadata()?;
    let root = metadata.workspace_root.as_std_path();
    let mut findings = Vec::new();
    for package in metadata.workspace_packages() {
        let path = package.manifest_path.as_std_path();
        let (file, text) = (relative(root, path), read(path)?);
        findings.extend(layers::check(package, &file, &text));
        findings.extend(manifests::check(&file, &text));
    }
    let families = sources::family_names(root)?;
    for folder in ["crates", "examples", "xtask"] {
        for path in rust_files(&root.join(folder))? {
            findings.extend(sources::check(
                &relative(root, &path),
                &read(&path)?,
                &families,
            ));
        }
    }
    Ok(findings)
}

/// Every Rust file below a folder, in order.
fn rust_files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for path in entries(folder)? {
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}

pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::Read {
        path: folder.to_owned(),
        source,
    };
    let listed = std::fs::read_dir(folder).map_err(failed)?;
    let mut paths = listed
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root)
        .unwrap_or(path)
        .to_string_lossy()
        .replace('\\', "/")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_workspace_is_tidy() {
        let findings = super::check().unwrap();
        let listed: Vec<_> = findings.iter().map(ToString::to_string).collect();
        assert!(findings.is_empty(), "\n{}", listed.join("\n"));
    }
}
