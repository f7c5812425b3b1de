//! The lists of "Common changes" in `docs/architecture.md`, and `xtask/choices.toml`: the files that a choice touches.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::Deserialize;

use super::{
    ARCHITECTURE, Finding, below,
    lexer::lines,
    links::prose,
    parse, read,
    sources::{without_tests, words},
    walks::listed,
};
use crate::error::Error;

const RULE: &str = "choices";
const LIST: &str = "xtask/choices.toml";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Choices {
    choice: Vec<Choice>,
}

/// A kind of choice, such as an optimizer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice {
    /// The heading of its list.
    heading: String,
    /// The names of the newest one in code.
    names: Vec<String>,
    /// The most files of the list.
    most: usize,
}

/// Compares the lists of the document with the sources, the texts of Rust files by path.
pub fn check(
    root: &Path,
    document: &str,
    sources: &BTreeMap<String, String>,
) -> Result<Vec<Finding>, Error> {
    let choices: Choices = parse(&root.join(LIST))?;
    let mentions = |path: &str, names: &[String]| mentions(&root.join(path), names);
    let findings = choices.choice.iter();
    let findings = findings.map(|choice| choice.check(document, sources, &mentions));
    Ok(findings.flatten().collect())
}

/// Returns true if a file, or one of a folder, has one of the names anywhere, in any case, and with or without `_` and `-`.
fn mentions(path: &Path, names: &[String]) -> bool {
    let files = match path.is_dir() {
        true => below(path, &|_| true).unwrap_or_default(),
        false => vec![path.to_owned()],
    };
    files.iter().any(|file| {
        let plain = |text: &str| text.replace(['_', '-'], "").to_lowercase();
        let text = plain(&read(file).unwrap_or_default());
        let mut names = names.iter().map(|name| name.trim_end_matches("Config"));
        names.any(|name| text.contains(&plain(name)))
    })
}

impl Choice {
    fn check(
        &self,
        document: &str,
        sources: &BTreeMap<String, String>,
        mentions: &dyn Fn(&str, &[String]) -> bool,
    ) -> Option<Finding> {
        let heading = format!("### {}", self.heading);
        let mut section = prose(document).skip_while(|(_, line)| *line != heading);
        let Some((line, _)) = section.next() else {
            let message = format!("there is no heading `{heading}`");
            return Some(Finding::new(ARCHITECTURE, 1, RULE, message));
        };
        let rows = section.take_while(|(_, line)| !line.starts_with('#'));
        let listed: BTreeSet<String> = rows.flat_map(|(_, row)| listed(row)).collect();
        let found = sources.iter().filter(|(file, _)| is_code(file));
        let found = found.filter(|(file, text)| self.names_path(file) || self.is_named_in(text));
        let found: BTreeSet<&String> = found.map(|(file, _)| file).collect();
        let covers = |entry: &str, file: &str| match entry.ends_with('/') {
            true => file.starts_with(entry),
            false => file == entry,
        };
        let missing = found.iter();
        let missing: Vec<&str> = missing
            .filter(|file| !listed.iter().any(|entry| covers(entry, file)))
            .map(|file| file.as_str())
            .collect();
        let stale = listed
            .iter()
            .map(String::as_str)
            .filter(|entry| match is_code(entry) {
                true => !found.iter().any(|file| covers(entry, file)),
                false => !mentions(entry, &self.names),
            });
        let stale: Vec<&str> = stale.collect();
        let names = self.names.join(", ");
        let message = match (missing.as_slice(), stale.as_slice()) {
            ([], []) if listed.len() <= self.most => return None,
            ([], []) => format!(
                "{} files, more than the {} of {LIST}: {}",
                listed.len(),
                self.most,
                Vec::from_iter(listed).join(", ")
            ),
            (missing, stale) => format!(
                "the files of the list have {names}. Add: {}. Remove: {}",
                joined(missing),
                joined(stale)
            ),
        };
        let message = format!("\"{}\": {message}", self.heading);
        Some(Finding::new(ARCHITECTURE, line, RULE, message))
    }

    /// Returns true if a file or its folder has one of the names.
    fn names_path(&self, file: &str) -> bool {
        let mut parts = file.trim_end_matches(".rs").split('/');
        parts.any(|part| self.names.iter().any(|name| name == part))
    }

    /// Returns true if code, except that of tests, has one of the names as an identifier or as a whole string.
    fn is_named_in(&self, text: &str) -> bool {
        if !self.names.iter().any(|name| text.contains(name)) {
            return false;
        }
        let is_name = |word: &str| self.names.iter().any(|name| name == word);
        let mut lines = without_tests(&lines(text)).into_iter();
        lines.any(|line| {
            words(&line.code).any(is_name) || line.strings.iter().any(|text| is_name(text))
        })
    }
}

fn joined(files: &[&str]) -> String {
    match files {
        [] => "none".to_owned(),
        files => files.join(", "),
    }
}

/// Returns true for files that are searched, and for folders with such files.
fn is_code(path: &str) -> bool {
    let is_test = path.contains("/tests/") || path.ends_with("/tests.rs");
    let is_source = path.ends_with(".rs") || path.ends_with('/');
    let in_source = path.starts_with("crates/") && path.contains("/src/");
    is_source && !is_test && (in_source || path.starts_with("examples/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_the_files_that_name_the_newest_choice() {
        let choice = Choice {
            heading: "Add a sampler".to_owned(),
            names: ["MinP", "min_p"].map(str::to_owned).into(),
            most: 5,
        };
        let sources = [
            ("crates/a/src/mod.rs", "match x { Kind::MinP => 1 }"),
            ("crates/a/src/min/one.rs", "let min_p = 1;"),
            ("crates/a/src/min/two.rs", "call(\"min_p\")"),
            ("crates/a/src/min_p/x.rs", ""),
            (
                "crates/a/src/other.rs",
                "// min_p\nlet x = \"a min_p\";\n#[cfg(test)]\nmod tests { fn min_p() {} }",
            ),
            ("crates/a/src/b/tests.rs", "fn min_p() {}"),
        ];
        let sources = sources.map(|(file, text)| (file.to_owned(), text.to_owned()));
        let sources = BTreeMap::from(sources);
        let message = |list: &str| {
            let document = format!(
                "### Add a sampler\n\n| file | x |\n{list}\n### Next\n| `crates/a/src/other.rs` |"
            );
            let mentions = |path: &str, _: &[String]| path.contains("chat");
            let finding = choice.check(&document, &sources, &mentions);
            finding.map(|it| it.message).unwrap_or_default()
        };
        let first = "| `crates/a/src/{mod,min/one}.rs` | `x` |\n";
        assert_eq!(
            message(&format!(
                "{first}| `crates/a/src/min/`, `crates/a/src/min_p/` |\n| `docs/chat.md` |\n"
            )),
            ""
        );
        assert_eq!(
            message(&format!("{first}| `crates/a/src/other.rs`, `docs/x.md` |")),
            "\"Add a sampler\": the files of the list have MinP, min_p. Add: crates/a/src/min/two.rs, crates/a/src/min_p/x.rs. Remove: \
             crates/a/src/other.rs, docs/x.md"
        );
        let long = "| `crates/a/src/{min,min_p}/`, `a/chat`, `b/chat` |";
        assert!(message(&format!("{first}{long}")).contains("6 files, more than the 5 of"));
    }
}
