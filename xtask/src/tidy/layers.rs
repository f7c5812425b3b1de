//! The allowed dependencies between crates, and the crates that may name a backend.
//!
//! Only shipped dependencies are checked. Tests (dev-dependencies) may use any crate and any backend.

use cargo_metadata::{Dependency, DependencyKind, Package};

use super::Finding;

const LAYERS: &str = "layers";
const BACKENDS: &str = "backends";

/// The crates of this workspace that each crate may depend on. Add new crates here.
const ALLOWED: [(&str, &[&str]); 20] = [
    ("emberlm-system", &[]),
    ("emberlm-hostile", &[]),
    ("emberlm-hub", &["emberlm-system"]),
    ("emberlm-sandbox", &[]),
    ("emberlm-gguf", &["emberlm-system"]),
    (
        "emberlm-tokenizer",
        &["emberlm-gguf", "emberlm-system", "emberlm-sandbox"],
    ),
    ("emberlm-data", &["emberlm-tokenizer", "emberlm-system"]),
    ("emberlm-kernels", &["emberlm-system"]),
    (
        "emberlm-model",
        &["emberlm-gguf", "emberlm-kernels", "emberlm-system"],
    ),
    (
        "emberlm-generate",
        &[
            "emberlm-model",
            "emberlm-kernels",
            "emberlm-sandbox",
            "emberlm-system",
        ],
    ),
    (
        "emberlm-checkpoint",
        &[
            "emberlm-data",
            "emberlm-gguf",
            "emberlm-tokenizer",
            "emberlm-model",
            "emberlm-kernels",
            "emberlm-system",
        ],
    ),
    (
        "emberlm-trainer",
        &[
            "emberlm-checkpoint",
            "emberlm-data",
            "emberlm-model",
            "emberlm-generate",
            "emberlm-kernels",
            "emberlm-system",
        ],
    ),
    ("emberlm-mpi", &["emberlm-trainer", "emberlm-kernels"]),
    (
        "emberlm-serve",
        &[
            "emberlm-checkpoint",
            "emberlm-generate",
            "emberlm-tokenizer",
            "emberlm-model",
            "emberlm-kernels",
            "emberlm-sandbox",
            "emberlm-system",
        ],
    ),
    (
        "emberlm",
        &[
            "emberlm-tokenizer",
            "emberlm-data",
            "emberlm-kernels",
            "emberlm-model",
            "emberlm-generate",
            "emberlm-checkpoint",
            "emberlm-trainer",
            "emberlm-serve",
        ],
    ),
    ("emberlm-cli", &EVERY_LIBRARY),
    (
        "emberlm-bench",
        &[
            "emberlm-cli",
            "emberlm-tokenizer",
            "emberlm-data",
            "emberlm-kernels",
            "emberlm-model",
            "emberlm-generate",
            "emberlm-checkpoint",
            "emberlm-trainer",
            "emberlm-system",
        ],
    ),
    ("emberlm-examples", &EVERY_LIBRARY),
    ("emberlm-fuzz", &EVERY_LIBRARY),
    ("xtask", &["emberlm-hostile", "emberlm-system"]),
];

const EVERY_LIBRARY: [&str; 14] = [
    "emberlm-mpi",
    "emberlm-hub",
    "emberlm",
    "emberlm-gguf",
    "emberlm-sandbox",
    "emberlm-system",
    "emberlm-tokenizer",
    "emberlm-data",
    "emberlm-kernels",
    "emberlm-model",
    "emberlm-generate",
    "emberlm-checkpoint",
    "emberlm-trainer",
    "emberlm-serve",
];

/// `emberlm-kernels` implements its trait for each backend, behind the feature of that backend.
const MAY_NAME_BACKENDS: [&str; 5] = [
    "emberlm-cli",
    "emberlm-examples",
    "emberlm-fuzz",
    "emberlm-kernels",
    "xtask",
];

/// Names of backends: as features of `burn` and of our crates, and as suffixes of `burn-…` crates.
const BACKEND_NAMES: [&str; 12] = [
    "flex", "ndarray", "wgpu", "webgpu", "vulkan", "metal", "cuda", "rocm", "cpu", "candle", "tch",
    "cubecl",
];

/// Checks a package of the workspace.
pub fn check(package: &Package, file: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for dependency in package
        .dependencies
        .iter()
        .filter(|it| it.kind != DependencyKind::Development)
    {
        let broken = [
            layer(package.name.as_str(), dependency),
            backend(package.name.as_str(), dependency),
        ];
        findings.extend(broken.into_iter().flatten().map(|(rule, message)| Finding {
            file: file.to_owned(),
            line: line_of(text, &dependency.name),
            rule,
            message,
        }));
    }
    findings
}

fn layer(package: &str, dependency: &Dependency) -> Option<(&'static str, String)> {
    let ours = dependency.name == "emberlm" || dependency.name.starts_with("emberlm-");
    let allowed = ALLOWED
        .iter()
        .find(|(name, _)| *name == package)
        .map(|(_, allowed)| *allowed);
    let message = match allowed {
        None if ours => format!(
            "`{package}` has no place among the layers yet: give it one in xtask/src/tidy/layers.rs"
        ),
        Some(allowed) if ours && !allowed.contains(&dependency.name.as_str()) => {
            let may = if allowed.is_empty() {
                "no crate of this workspace".to_owned()
            } else {
                allowed.join(", ")
            };
            format!(
                "`{package}` may depend on {may}; it depends on `{}`",
                dependency.name
            )
        }
        _ => return None,
    };
    Some((LAYERS, message))
}

fn backend(package: &str, dependency: &Dependency) -> Option<(&'static str, String)> {
    if MAY_NAME_BACKENDS.contains(&package) {
        return None;
    }
    let by_crate = dependency
        .name
        .strip_prefix("burn-")
        .filter(|name| BACKEND_NAMES.contains(name));
    let takes_features = dependency.name == "burn" || dependency.name.starts_with("emberlm-");
    let named = |feature: &&str| takes_features && BACKEND_NAMES.contains(feature);
    let by_feature = dependency.features.iter().map(String::as_str).find(named);
    let name = by_crate.or(by_feature)?;
    let who = MAY_NAME_BACKENDS.join(", ");
    Some((
        BACKENDS,
        format!(
            "only {who} and tests name a backend; `{package}` names `{name}` through `{}`",
            dependency.name
        ),
    ))
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

    fn package(name: &str, dependencies: serde_json::Value) -> Package {
        serde_json::from_value(json!({
            "name": name, "version": "0.1.0", "id": name, "dependencies": dependencies, "targets": [], "features": {},
            "manifest_path": "Cargo.toml", "authors": [], "categories": [], "keywords": [], "edition": "2024",
            "license": null, "license_file": null, "description": null, "source": null, "readme": null,
            "repository": null, "homepage": null, "documentation": null, "links": null, "publish": null,
            "default_run": null, "rust_version": null, "metadata": null,
        }))
        .unwrap()
    }

    fn dependency(name: &str, kind: Option<&str>, features: &[&str]) -> serde_json::Value {
        json!({
            "name": name, "source": null, "req": "*", "kind": kind, "optional": false, "uses_default_features": true,
            "features": features, "target": null, "rename": null, "registry": null, "path": null,
        })
    }

    fn rules(name: &str, dependencies: serde_json::Value) -> Vec<&'static str> {
        check(&package(name, dependencies), "Cargo.toml", "")
            .iter()
            .map(|finding| finding.rule)
            .collect()
    }

    #[test]
    fn an_upward_dependency_is_found_and_its_line_named() {
        let package = package(
            "emberlm-data",
            json!([dependency("emberlm-model", None, &[])]),
        );
        let text =
            "[package]\n[dependencies]\nserde.workspace = true\nemberlm-model.workspace = true\n";
        let findings = check(&package, "crates/data/Cargo.toml", text);
        assert_eq!(
            findings.first().map(ToString::to_string).as_deref(),
            Some(
                "crates/data/Cargo.toml:4: [layers] `emberlm-data` may depend on emberlm-tokenizer, emberlm-system; \
                 it depends on `emberlm-model`"
            )
        );
    }

    #[test]
    fn a_crate_without_a_place_is_found() {
        assert_eq!(
            rules(
                "emberlm-new",
                json!([dependency("emberlm-data", None, &[])])
            ),
            [LAYERS]
        );
    }

    #[test]
    fn a_backend_is_found_as_a_crate_and_as_a_feature() {
        assert_eq!(
            rules("emberlm-model", json!([dependency("burn-flex", None, &[])])),
            [BACKENDS]
        );
        assert_eq!(
            rules(
                "emberlm-model",
                json!([dependency("burn", None, &["std", "cuda"])])
            ),
            [BACKENDS]
        );
        assert_eq!(
            rules(
                "emberlm-model",
                json!([dependency("emberlm-kernels", None, &["flex"])])
            ),
            [BACKENDS]
        );
    }

    #[test]
    fn tests_kernels_and_the_binary_may_name_one() {
        assert!(
            rules(
                "emberlm-model",
                json!([dependency("burn-flex", Some("dev"), &[])])
            )
            .is_empty()
        );
        assert!(
            rules(
                "emberlm-kernels",
                json!([dependency("burn-flex", None, &[])])
            )
            .is_empty()
        );
        assert!(
            rules(
                "emberlm-cli",
                json!([dependency("burn", None, &["vulkan"])])
            )
            .is_empty()
        );
        assert!(
            rules(
                "emberlm-trainer",
                json!([dependency("burn", None, &["train", "tui"])])
            )
            .is_empty()
        );
    }
}
