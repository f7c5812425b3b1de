//! The fuzzers, which `fuzz/Cargo.toml` lists with their seeds and limits.

use std::collections::BTreeMap;

use cargo_metadata::Metadata;
use serde::Deserialize;

use crate::error::Error;

/// The package of the fuzzers, and the table with them in its manifest's metadata.
const PACKAGE: &str = "emberlm-fuzz";
const TABLE: &str = "fuzzers";
/// Memory limit of a fuzzer's process in MiB. An input that exceeds it is a finding.
const MEMORY_MIB: u32 = 1500;

/// A fuzzer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The name of the program.
    #[serde(skip)]
    pub name: String,
    /// Folders of the repository with the initial inputs.
    pub seeds: Vec<String>,
    /// Maximum length of an input in KiB.
    pub longest_kib: u32,
    /// Seconds after which an input is a finding.
    pub timeout: u32,
}

impl Target {
    /// libFuzzer's arguments with the limits of an input.
    pub fn limits(&self) -> [String; 3] {
        [
            format!("-rss_limit_mb={MEMORY_MIB}"),
            format!("-timeout={}", self.timeout),
            format!("-max_len={}", self.longest_kib << 10),
        ]
    }
}

/// The fuzzers with the given names, or all.
pub fn chosen(metadata: &Metadata, names: &[String]) -> Result<Vec<Target>, Error> {
    let mut packages = metadata.packages.iter();
    let package = packages.find(|package| package.name.as_str() == PACKAGE);
    let package = package.ok_or(Error::NoPackage { name: PACKAGE })?;
    let table = BTreeMap::deserialize(&package.metadata[TABLE]);
    let table: BTreeMap<String, Target> = table.map_err(|error| Error::Invalid {
        path: package.manifest_path.clone().into(),
        reason: error.to_string(),
    })?;
    if let Some(name) = names.iter().find(|name| !table.contains_key(*name)) {
        let known: Vec<&str> = table.keys().map(String::as_str).collect();
        return Err(Error::NoTarget {
            name: name.clone(),
            known: known.join(", "),
        });
    }
    let chosen = table.into_iter();
    let chosen = chosen.filter(|(name, _)| names.is_empty() || names.contains(name));
    Ok(chosen
        .map(|(name, target)| Target { name, ..target })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn every_fuzzer_is_listed_with_its_seeds() {
        let metadata = workspace::metadata().unwrap();
        let root = &metadata.workspace_root;
        let listed = chosen(&metadata, &[]).unwrap();
        for seed in listed.iter().flat_map(|target| &target.seeds) {
            assert!(root.join(seed).is_dir(), "{seed}");
        }
        let entries = root.join("fuzz/fuzz_targets").read_dir_utf8().unwrap();
        let files = entries.map(|entry| entry.unwrap().path().file_stem().unwrap().to_owned());
        let mut files: Vec<String> = files.collect();
        files.sort();
        let names: Vec<String> = listed.into_iter().map(|target| target.name).collect();
        assert_eq!(names, files);
        let error = chosen(&metadata, &["shards".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("manifest, shard"), "{error}");
    }
}
