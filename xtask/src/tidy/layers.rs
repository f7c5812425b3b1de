//! The allowed dependencies between crates, and the crates that may name a backend, of `xtask/layers.toml`.

use std::{collections::BTreeMap, path::Path};

use cargo_metadata::{Dependency, DependencyKind, Package};
use serde::Deserialize;

use super::{Finding, parse};
use crate::error::Error;

const LAYERS: &str = "layers";
const BACKENDS: &str = "backends";
/// The list, relative to the workspace's root.
const LIST: &str = "xtask/layers.toml";

/// The allowed dependencies.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layers {
    /// Names of backends: as features of `burn` and of our crates, and as suffixes of `burn-…` crates.
    backends: Vec<String>,
    may_name_backends: Vec<String>,
    /// The crates that may depend on every crate of `allowed` except those of `not_published`.
    may_use_every_library: Vec<String>,
    not_published: Vec<String>,
    /// The crates that each other crate may depend on.
    allowed: BTreeMap<String, Vec<String>>,
}

impl Layers {
    /// Reads the list.
    ///
    /// # Errors
    /// The file cannot be read or has another format.
    pub fn read(root: &Path) -> Result<Self, Error> {
        parse(&root.join(LIST))
    }

    /// Checks the shipped dependencies of a package of the workspace.
    pub fn check(&self, package: &Package, file: &str, text: &str) -> Vec<Finding> {
        let shipped = package.dependencies.iter();
        let shipped = shipped.filter(|it| it.kind != DependencyKind::Development);
        let checked = shipped.flat_map(|dependency| {
            let layer = self.layer(&package.name, dependency);
            let backend = self.backend(&package.name, dependency);
            let broken = [(LAYERS, layer), (BACKENDS, backend)];
            let line = line_of(text, &dependency.name);
            broken.map(|(rule, message)| {
                message.map(|message| Finding::new(file, line, rule, message))
            })
        });
        checked.flatten().collect()
    }

    fn layer(&self, package: &str, dependency: &Dependency) -> Option<String> {
        let name = &dependency.name;
        if name != "emberlm" && !name.starts_with("emberlm-") {
            return None;
        }
        let mut allowed: Vec<&String> = match self.allowed.get(package) {
            Some(allowed) => allowed.iter().collect(),
            None if self.may_use_every_library.iter().any(|it| it == package) => {
                self.allowed.keys().collect()
            }
            None => {
                return Some(format!(
                    "`{package}` has no place among the layers yet: give it one in {LIST}"
                ));
            }
        };
        if !self.allowed.contains_key(package) {
            allowed.retain(|name| !self.not_published.contains(name));
        }
        if allowed.contains(&name) {
            return None;
        }
        let may = match allowed.is_empty() {
            true => "no crate of this workspace".to_owned(),
            false => joined(allowed),
        };
        Some(format!(
            "`{package}` may depend on {may}; it depends on `{name}`"
        ))
    }

    fn backend(&self, package: &str, dependency: &Dependency) -> Option<String> {
        if self.may_name_backends.iter().any(|it| it == package) {
            return None;
        }
        let is_backend = |name: &str| self.backends.iter().any(|backend| backend == name);
        let name = &dependency.name;
        let by_crate = name.strip_prefix("burn-").filter(|name| is_backend(name));
        let takes_features = name == "burn" || name.starts_with("emberlm-");
        let mut features = dependency.features.iter().map(String::as_str);
        let by_feature = features.find(|feature| takes_features && is_backend(feature));
        let backend = by_crate.or(by_feature)?;
        let may = joined(&self.may_name_backends);
        Some(format!(
            "only {may} and tests name a backend; `{package}` names `{backend}` through `{name}`"
        ))
    }
}

fn joined<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    names.join(", ")
}

/// The first line of the manifest that has the dependency as a key.
fn line_of(manifest: &str, dependency: &str) -> usize {
    let is_key = |line: &str| {
        line.trim_start()
            .strip_prefix(dependency)
            .is_some_and(|rest| rest.trim_start().starts_with(['=', '.']))
    };
    manifest.lines().position(is_key).map_or(1, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TEXT: &str = "[dependencies]\nserde = 1\nemberlm-model.workspace = true\n";

    /// The findings of a package with one dependency.
    fn findings(name: &str, dependency: (&str, Option<&str>, &[&str])) -> Vec<String> {
        let (needed, kind, features) = dependency;
        let dependency = json!({
            "name": needed, "source": null, "req": "*", "kind": kind, "optional": false,
            "uses_default_features": true, "features": features, "target": null, "rename": null,
            "registry": null, "path": null,
        });
        let package = json!({
            "name": name, "version": "0.1.0", "id": name, "dependencies": [dependency],
            "targets": [], "features": {}, "manifest_path": "Cargo.toml",
        });
        let package: Package = serde_json::from_value(package).unwrap();
        let root = crate::workspace::metadata().unwrap().workspace_root;
        let layers = Layers::read(root.as_std_path()).unwrap();
        let found = layers.check(&package, "Cargo.toml", TEXT);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn dependencies_follow_the_layers() {
        assert_eq!(
            findings("emberlm-data", ("emberlm-model", None, &[])),
            [
                "Cargo.toml:3: [layers] `emberlm-data` may depend on emberlm-tokenizer, emberlm-system; it depends on \
                 `emberlm-model`"
            ]
        );
        for (name, dependency, broken) in [
            ("emberlm-new", ("emberlm-data", None, &[][..]), "layers"),
            ("emberlm-cli", ("emberlm-bench", None, &[]), "layers"),
            ("emberlm-cli", ("emberlm-model", None, &[]), ""),
            ("emberlm-data", ("emberlm-model", Some("dev"), &[]), ""),
            ("emberlm-model", ("burn-flex", None, &[]), "backends"),
            (
                "emberlm-model",
                ("burn", None, &["std", "cuda"]),
                "backends",
            ),
            (
                "emberlm-model",
                ("emberlm-kernels", None, &["flex"]),
                "backends",
            ),
            ("emberlm-model", ("burn-flex", Some("dev"), &[]), ""),
            ("emberlm-kernels", ("burn-flex", None, &[]), ""),
            ("emberlm-cli", ("burn", None, &["vulkan"]), ""),
            ("emberlm-trainer", ("burn", None, &["train", "tui"]), ""),
        ] {
            let found = findings(name, dependency);
            let is_right = match broken {
                "" => found.is_empty(),
                rule => found.len() == 1 && found[0].contains(&format!("[{rule}]")),
            };
            assert!(is_right, "{name} {dependency:?}: {found:?}");
        }
    }
}
