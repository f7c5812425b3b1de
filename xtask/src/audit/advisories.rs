//! RustSec's advisories. Each is a Markdown file that begins with a TOML table.

use std::{fs, path::Path};

use cargo_metadata::{
    Package,
    semver::{Version, VersionReq},
};
use serde::Deserialize;

use super::policy;
use crate::{error::Error, tidy};

#[derive(Debug, Deserialize)]
struct Entry {
    advisory: Advisory,
    versions: Versions,
}

#[derive(Debug, Deserialize)]
struct Advisory {
    id: String,
    withdrawn: Option<String>,
    informational: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Versions {
    #[serde(default)]
    patched: Vec<VersionReq>,
    #[serde(default)]
    unaffected: Vec<VersionReq>,
}

/// The advisories of the database that affect a package, except for those in the policy.
pub fn check(folder: &Path, packages: &[&Package]) -> Result<Vec<String>, Error> {
    let crates = folder.join("crates");
    // Rejects a folder that is not a database, in which no advisory would be found.
    tidy::entries(&crates)?;
    let mut findings = Vec::new();
    let mut listed = Vec::new();
    for package in packages.iter().filter(|package| package.source.is_some()) {
        let folder = crates.join(package.name.as_str());
        if !folder.is_dir() {
            continue;
        }
        for path in tidy::entries(&folder)? {
            let text = fs::read_to_string(&path).map_err(|source| Error::Read {
                path: path.clone(),
                source,
            })?;
            let entry = match read(&text) {
                Ok(entry) => entry,
                Err(reason) => {
                    findings.push(format!("{}: {reason}", path.display()));
                    continue;
                }
            };
            if !entry.affects(&package.version) {
                continue;
            }
            let Advisory {
                id, informational, ..
            } = entry.advisory;
            let kind = informational.as_deref().unwrap_or("vulnerable");
            match policy::ADVISORIES.iter().find(|(known, _)| *known == id) {
                Some((known, reason)) if !listed.contains(known) => {
                    listed.push(*known);
                    eprintln!("{id}: accepted: {reason}");
                }
                Some(_) => {}
                None => findings.push(format!(
                    "{} {}: {kind}: {id}",
                    package.name, package.version
                )),
            }
        }
    }
    for (id, _) in policy::ADVISORIES {
        if !listed.contains(&id) {
            findings.push(format!("{id} affects no crate: correct the policy"));
        }
    }
    Ok(findings)
}

fn read(text: &str) -> Result<Entry, String> {
    let table = text
        .split("```")
        .nth(1)
        .and_then(|table| table.strip_prefix("toml"));
    let table = table.ok_or("begins with no table")?;
    toml::from_str(table).map_err(|error| error.to_string())
}

impl Entry {
    fn affects(&self, version: &Version) -> bool {
        let Versions {
            patched,
            unaffected,
        } = &self.versions;
        let safe = patched
            .iter()
            .chain(unaffected)
            .any(|versions| versions.matches(version));
        self.advisory.withdrawn.is_none() && !safe
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_are_patched_or_were_never_affected_are_safe() {
        let text = "```toml\n[advisory]\nid = \"RUSTSEC-2020-0001\"\npackage = \"a\"\ndate = \"2020-01-01\"\n\
            [versions]\npatched = [\">= 1.2.3\", \"^1.1.5\"]\nunaffected = [\"< 1.0.0\"]\n```\n# A\n";
        let entry = read(text).unwrap();
        let affected = ["0.9.9", "1.0.0", "1.1.4", "1.1.5", "1.2.2", "2.0.0"]
            .map(|version| entry.affects(&version.parse().unwrap()));
        assert_eq!(affected, [false, true, true, false, false, false]);
        let withdrawn = text.replace("[versions]", "withdrawn = \"2021-01-01\"\n[versions]");
        assert!(!read(&withdrawn).unwrap().affects(&"1.0.0".parse().unwrap()));
        assert!(read("# A").is_err());
    }
}
