//! Checks that every member inherits the workspace's lints. Without the two lines in its manifest a crate is
//! not linted.

use super::Finding;

/// Checks the manifest of a member.
pub fn check(file: &str, text: &str) -> Option<Finding> {
    (!inherits_lints(text)).then(|| Finding {
        file: file.to_owned(),
        line: 1,
        rule: "lints",
        message:
            "every member inherits the workspace's lints; add `[lints]` with `workspace = true`"
                .to_owned(),
    })
}

fn inherits_lints(text: &str) -> bool {
    let mut table = "";
    for line in text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
    {
        let pair = line
            .split_once('=')
            .map(|(key, value)| (key.trim(), value.trim()));
        match pair {
            _ if line.starts_with('[') => table = line,
            Some(("workspace", "true")) if table == "[lints]" => return true,
            Some(("lints.workspace", "true")) if table.is_empty() => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_accepted() {
        assert_eq!(
            check(
                "",
                "[package]\nname = \"a\"\n[lints]\nworkspace = true # all of them\n"
            ),
            None
        );
        assert_eq!(check("", "lints.workspace = true\n[package]\n"), None);
    }

    #[test]
    fn missing_lints_are_found() {
        for text in [
            "[package]\n",
            "[lints]\n[dependencies]\nworkspace = true\n",
            "[lints.rust]\nworkspace = true\n",
        ] {
            assert_eq!(
                check("a/Cargo.toml", text).map(|finding| finding.rule),
                Some("lints"),
                "{text}"
            );
        }
    }
}
