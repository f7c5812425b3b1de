//! `cargo xtask audit`: checks licences, sources and duplicate versions of every crate that any feature on any
//! platform depends on, against `deny.toml`.
//!
//! `cargo deny check` reads the same file and also checks advisories, but needs minutes to be built and a network.

use std::{collections::BTreeMap, process::ExitCode};

use cargo_metadata::{CargoOpt, MetadataCommand, Package, semver::VersionReq};
use serde::{Deserialize, Deserializer, de::Error as _};
use spdx::{Expression, LicenseReq, ParseMode};

use crate::{error::Error, tidy};

/// The rules in cargo-deny's format, relative to the workspace's root.
const RULES: &str = "deny.toml";
/// The only allowed source of dependencies, in cargo's notation.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The rules that are checked here.
#[derive(Debug, Deserialize)]
struct Rules {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Debug, Deserialize)]
struct Licenses {
    allow: Vec<String>,
    exceptions: Vec<Exception>,
}

/// Licences that are allowed for one crate only.
#[derive(Debug, Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    skip: Vec<Skip>,
}

/// Versions of a crate that may exist beside another version: `name:requirement`.
#[derive(Debug)]
struct Skip {
    name: String,
    versions: VersionReq,
}

impl<'de> Deserialize<'de> for Skip {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (name, versions) = text
            .split_once(':')
            .ok_or_else(|| D::Error::custom(format!("`{text}` must be `name:requirement`")))?;
        Ok(Self {
            name: name.to_owned(),
            versions: versions.parse().map_err(D::Error::custom)?,
        })
    }
}

/// Prints all violations of the rules. Fails if there are any.
pub fn run() -> Result<ExitCode, Error> {
    let mut command = MetadataCommand::new();
    let metadata = command.features(CargoOpt::AllFeatures).exec()?;
    let rules: Rules = tidy::parse(metadata.workspace_root.join(RULES).as_std_path())?;
    let packages = &metadata.packages;
    let mut findings: Vec<String> = packages.iter().filter_map(source).collect();
    findings.extend(packages.iter().filter_map(|it| rules.licenses.check(it)));
    findings.extend(rules.bans.check(packages));
    for finding in &findings {
        println!("{finding}");
    }
    eprintln!(
        "audit: {} crates, {} finding(s)",
        packages.len(),
        findings.len()
    );
    Ok(match findings.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Checks that a crate outside the workspace is from the registry, whose crates the lock file pins by hash.
fn source(package: &Package) -> Option<String> {
    let source = package.source.as_ref()?;
    (source.repr != REGISTRY).then(|| {
        format!(
            "{}: the source {} is not the registry",
            of(package),
            source.repr
        )
    })
}

impl Licenses {
    fn check(&self, package: &Package) -> Option<String> {
        let Some(text) = &package.license else {
            return Some(format!("{}: no licence is declared", of(package)));
        };
        let expression = match Expression::parse_mode(text, ParseMode::LAX) {
            Ok(expression) => expression,
            Err(error) => {
                return Some(format!(
                    "{}: the licence `{text}`: {}",
                    of(package),
                    error.reason
                ));
            }
        };
        let allowed = |requirement: &LicenseReq| {
            let name = requirement.to_string();
            let of_crate = self.exceptions.iter();
            let mut of_crate = of_crate.filter(|it| it.name == package.name.as_str());
            self.allow.contains(&name) || of_crate.any(|it| it.allow.contains(&name))
        };
        (!expression.evaluate(allowed))
            .then(|| format!("{}: the licence `{text}` is not allowed", of(package)))
    }
}

impl Bans {
    /// Finds crates with several versions that are not skipped, and entries of the list that are not needed.
    fn check(&self, packages: &[Package]) -> Vec<String> {
        let mut versions: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for package in packages {
            let of_name = versions.entry(&package.name).or_default();
            of_name.push(&package.version);
        }
        let mut findings = Vec::new();
        for (name, versions) in &versions {
            let skips = || self.skip.iter().filter(|skip| skip.name == *name);
            let rest: Vec<String> = versions
                .iter()
                .filter(|version| !skips().any(|skip| skip.versions.matches(version)))
                .map(ToString::to_string)
                .collect();
            if rest.len() > 1 {
                let rest = rest.join(", ");
                findings.push(format!("{name}: several versions, {rest}"));
            }
        }
        let is_needed = |skip: &&Skip| {
            let versions = versions
                .get(skip.name.as_str())
                .map_or(&[][..], Vec::as_slice);
            versions.len() > 1 && versions.iter().any(|it| skip.versions.matches(it))
        };
        let unneeded = self.skip.iter().filter(|skip| !is_needed(skip));
        findings.extend(unneeded.map(|skip| {
            format!(
                "{}:{}: there is no such duplicate; remove it from {RULES}",
                skip.name, skip.versions
            )
        }));
        findings
    }
}

fn of(package: &Package) -> String {
    format!("{} {}", package.name, package.version)
}
