//! Checks that every member inherits the workspace's lints. Without the two lines in its manifest a crate is
//! not linted.

use super::Finding;

/// Checks the manifest of a member.
pub fn check(file: &str, text: &str) -> Option<Finding> {
    let manifest: toml::Table = toml::from_str(text).unwrap_or_default();
    let inherits = manifest
        .get("lints")
        .and_then(|lints| lints.get("workspace")?.as_bool());
    let message =
        "every member inherits the workspace's lints; add `[lints]` with `workspace = true`";
    (inherits != Some(true)).then(|| Finding::new(file, 1, "lints", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_lints_are_found() {
        for (text, is_good) in [
            (
                "[package]\nname = \"a\"\n[lints]\nworkspace = true # all\n",
                true,
            ),
            ("lints.workspace = true\n[package]\n", true),
            ("[package]\n", false),
            ("[lints]\n[dependencies]\nworkspace = true\n", false),
            ("[lints.rust]\nworkspace = true\n", false),
        ] {
            assert_eq!(check("a/Cargo.toml", text).is_none(), is_good, "{text}");
        }
    }
}
