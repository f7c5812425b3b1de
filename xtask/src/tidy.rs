//! `cargo xtask tidy`: checks the rules of docs/architecture.md that the compiler does not check. It also runs
//! as a test.
//!
//! Map: `layers` checks the dependencies between crates, `modules` those between the modules of a crate, `manifests` the
//! shared lints, `sources` single files (unsafe code, length, names of families), `language` refused phrases, `links` the
//! links of the documentation and its table of contents, and `walks` and `choices` the lists of files in
//! `docs/architecture.md`. `lexer` splits Rust source.

mod choices;
mod language;
mod layers;
mod lexer;
mod links;
mod manifests;
mod modules;
mod sources;
mod walks;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use serde::de::DeserializeOwned;

use crate::{error::Error, workspace};

/// The folders whose Rust files must follow the rules of `sources`.
const CODE: [&str; 3] = ["crates/", "examples/", "xtask/"];
/// Folders with generated or downloaded files.
const NOT_SOURCE: [&str; 4] = ["target", "corpus", "artifacts", "node_modules"];
/// The document whose lists are compared with the code.
const ARCHITECTURE: &str = "docs/architecture.md";
/// Extensions of the files whose language and links are checked.
const READ_BY_PEOPLE: [&str; 4] = ["rs", "md", "html", "js"];

/// A violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the workspace's root, with forward slashes.
    file: String,
    /// The line number, counted from 1.
    line: usize,
    /// The name of the rule.
    rule: &'static str,
    /// The rule, and the text that violates it.
    message: String,
}

impl Finding {
    fn new(file: &str, line: usize, rule: &'static str, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line,
            rule,
            message: message.into(),
        }
    }
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

/// Prints all findings. Fails if there are any.
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
    let layers = layers::Layers::read(root)?;
    let mut findings = Vec::new();
    for package in metadata.workspace_packages() {
        let path = package.manifest_path.as_std_path();
        let (file, text) = (relative(root, path), read(path)?);
        findings.extend(layers.check(package, &file, &text));
        findings.extend(manifests::check(&file, &text));
        let sources = modules::sources(path.parent().unwrap_or(root))?;
        findings.extend(modules::check(&file, &sources));
    }
    let families = sources::family_names(root)?;
    let language = language::Language::read(root)?;
    let (mut documents, mut code) = (BTreeMap::new(), BTreeMap::new());
    for path in text_files(root)? {
        let (file, text) = (relative(root, &path), read(&path)?);
        if file.ends_with(".rs") && CODE.iter().any(|folder| file.starts_with(folder)) {
            findings.extend(sources::check(&file, &text, &families));
        }
        findings.extend(language.check(&file, &text));
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("md") => drop(documents.insert(file, text)),
            Some("rs") => drop(code.insert(file, text)),
            _ => {}
        }
    }
    findings.extend(links::check(root, &documents));
    let architecture = documents.get(ARCHITECTURE).map_or("", String::as_str);
    findings.extend(walks::check(architecture, &code));
    findings.extend(choices::check(root, architecture, &code)?);
    Ok(findings)
}

/// The files whose language or links are checked, sorted. Skips build folders and hidden ones.
fn text_files(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let enters = |name: &str| !name.starts_with('.') && !NOT_SOURCE.contains(&name);
    let mut files = below(root, &enters)?;
    files.retain(|path| {
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        READ_BY_PEOPLE.contains(&extension.as_ref())
    });
    Ok(files)
}

/// The files in a folder and in the folders below it with names that `enters` accepts, sorted.
pub(crate) fn below(folder: &Path, enters: &dyn Fn(&str) -> bool) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for path in entries(folder)? {
        if !path.is_dir() {
            files.push(path);
        } else if enters(&path.file_name().unwrap_or_default().to_string_lossy()) {
            files.extend(below(&path, enters)?);
        }
    }
    Ok(files)
}

/// The files and folders in a folder, sorted.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let listed = std::fs::read_dir(folder).map_err(Error::read(folder))?;
    let mut paths = listed
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Error::read(folder))?;
    paths.sort();
    Ok(paths)
}

pub(crate) fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(Error::read(path))
}

/// Reads a TOML file.
pub(crate) fn parse<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    toml::from_str(&read(path)?).map_err(|error| Error::Invalid {
        path: path.to_owned(),
        reason: error.to_string(),
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
