//! `cargo xtask audit`: checks licences, sources, duplicate versions and advisories of every crate that any
//! feature on any platform depends on.
//!
//! Map: `policy` lists the exceptions with reasons; `advisories` reads a copy of RustSec's database.

mod advisories;
mod policy;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::ExitCode,
};

use cargo_metadata::{CargoOpt, MetadataCommand, Package};
use spdx::{Expression, LicenseReq, ParseMode};

use crate::error::Error;

/// Arguments of `cargo xtask audit`.
#[derive(Clone, Debug, clap::Args)]
pub struct AuditArgs {
    /// Also check a copy of RustSec's advisory database (the repository rustsec/advisory-db).
    #[arg(long, value_name = "DIR")]
    advisories: Option<PathBuf>,
}

/// Prints all violations of the policy. Fails if there are any.
pub fn run(args: &AuditArgs) -> Result<ExitCode, Error> {
    let mut command = MetadataCommand::new();
    let metadata = command.features(CargoOpt::AllFeatures).exec()?;
    let packages: Vec<&Package> = metadata.packages.iter().collect();
    let mut findings = Vec::new();
    for package in &packages {
        findings.extend(source(package));
        findings.extend(licence(package));
    }
    findings.extend(duplicates(&packages));
    if let Some(folder) = &args.advisories {
        findings.extend(advisories::check(folder, &packages)?);
    }
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
    (source.repr != policy::REGISTRY).then(|| {
        format!(
            "{}: the source {} is not the registry",
            of(package),
            source.repr
        )
    })
}

fn licence(package: &Package) -> Option<String> {
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
        policy::LICENCES.contains(&name.as_str())
            || policy::LICENCES_OF_CRATES.contains(&(&package.name, &name))
    };
    (!expression.evaluate(allowed))
        .then(|| format!("{}: the licence `{text}` is not allowed", of(package)))
}

/// Finds crates with more versions than the policy allows, and entries of the policy that are obsolete.
fn duplicates(packages: &[&Package]) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for package in packages {
        versions
            .entry(&package.name)
            .or_default()
            .insert(package.version.to_string());
    }
    versions.retain(|_, versions| versions.len() > 1);
    let listed: BTreeMap<&str, usize> = policy::DUPLICATES
        .iter()
        .flat_map(|(_, crates)| crates.iter().copied())
        .collect();
    let mut findings = Vec::new();
    for (name, versions) in &versions {
        let most = listed.get(name).copied().unwrap_or(1);
        if versions.len() > most {
            let shown: Vec<&str> = versions.iter().map(String::as_str).collect();
            findings.push(format!(
                "{name}: {} versions, where {most} may be: {}",
                versions.len(),
                shown.join(", ")
            ));
        }
    }
    for (name, most) in listed {
        let there = versions.get(name).map_or(1, BTreeSet::len);
        if there < most {
            findings.push(format!(
                "{name}: {there} version(s), where the policy lists {most}: correct it"
            ));
        }
    }
    findings
}

fn of(package: &Package) -> String {
    format!("{} {}", package.name, package.version)
}
