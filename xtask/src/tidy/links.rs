//! Checks the links of the documentation. A relative link must name a file of the workspace, its `#anchor` must
//! be a heading of that file, and `docs/SUMMARY.md` must list every page.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::Finding;

const RULE: &str = "links";
/// The table of contents, in mdBook's format.
const SUMMARY: &str = "docs/SUMMARY.md";

/// A link with its line, counted from 1.
struct Link {
    line: usize,
    target: String,
}

/// Checks the links of Markdown files, given with their paths relative to the workspace's root.
pub fn check(root: &Path, documents: &BTreeMap<String, String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut listed = BTreeSet::new();
    for (file, text) in documents {
        for link in links(text) {
            let (path, anchor) = link.target.split_once('#').unwrap_or((&link.target, ""));
            let target = if path.is_empty() {
                file.clone()
            } else {
                beside(file, path)
            };
            if file == SUMMARY {
                listed.insert(target.clone());
            }
            let message = if !root.join(&target).exists() {
                format!("`{}`: there is no {target}", link.target)
            } else if let Some(text) = documents.get(&target).filter(|_| !anchor.is_empty())
                && !anchors(text).contains(anchor)
            {
                format!("`{}`: {target} has no heading #{anchor}", link.target)
            } else {
                continue;
            };
            findings.push(Finding::new(file, link.line, RULE, message));
        }
    }
    if documents.contains_key(SUMMARY) {
        let pages = documents.keys().filter(|file| file.starts_with("docs/"));
        let missing = pages.filter(|file| *file != SUMMARY && !listed.contains(*file));
        findings.extend(
            missing.map(|file| Finding::new(SUMMARY, 1, RULE, format!("{file} is not listed"))),
        );
    }
    findings
}

/// The path of a link's target, relative to the workspace's root.
fn beside(file: &str, target: &str) -> String {
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    let mut path = PathBuf::new();
    for part in folder.join(target).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path.to_string_lossy().replace('\\', "/")
}

/// The relative links of a text, `[text](target)` and `[name]: target`, outside of code.
fn links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for (line, prose) in prose(text) {
        let prose: String = prose.split('`').step_by(2).collect();
        let mut targets: Vec<&str> = prose
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split([')', ' ']).next())
            .collect();
        if prose.starts_with('[')
            && let Some((_, target)) = prose.split_once("]: ")
        {
            targets.push(target.trim());
        }
        let relative = |target: &&str| !target.contains("://") && !target.starts_with("mailto:");
        found.extend(targets.into_iter().filter(relative).map(|target| Link {
            line,
            target: target.to_owned(),
        }));
    }
    found
}

/// The lines outside of code blocks, with their numbers.
pub fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_block = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        in_block ^= fence;
        !fence && !in_block
    })
}

/// The anchors of a text's headings, as code hosts and mdBook generate them: lower case, hyphens for spaces, no
/// punctuation, and a number after repeated headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for heading in prose(text).filter_map(|(_, line)| line.strip_prefix('#')) {
        let anchor: String = heading
            .trim_start_matches('#')
            .trim()
            .chars()
            .filter(|next| next.is_alphanumeric() || matches!(next, ' ' | '-' | '_'))
            .map(|next| if next == ' ' { '-' } else { next })
            .flat_map(char::to_lowercase)
            .collect();
        let repeated = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone())
            .chain(repeated)
            .find(|name| !found.contains(name));
        found.extend(free);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(documents: &[(&str, &str)]) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in documents {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let documents = documents
            .iter()
            .map(|(file, text)| ((*file).to_owned(), (*text).to_owned()))
            .collect();
        let findings = check(root.path(), &documents);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_to_files_and_headings_are_followed() {
        let page = "[a](../README.md#the-first-one-1), [b](https://example.org/x) `[c](no.md)`\n```\n[d](no.md)\n```\n";
        let readme = "# The first `one`!\n## The first one\n[here](#the-first-one) [page](docs/a.md)\n[docs]: docs\n";
        assert!(refused(&[("docs/a.md", page), ("README.md", readme)]).is_empty());
    }

    #[test]
    fn broken_links_are_findings() {
        let page = "\n[a](no.md) and [b](#none)\n";
        assert_eq!(
            refused(&[("docs/a.md", page)]),
            [
                "docs/a.md:2: [links] `no.md`: there is no docs/no.md",
                "docs/a.md:2: [links] `#none`: docs/a.md has no heading #none",
            ]
        );
    }

    #[test]
    fn the_summary_lists_every_page() {
        let summary = "# Summary\n- [A](a.md)\n";
        let pages = [
            ("docs/SUMMARY.md", summary),
            ("docs/a.md", ""),
            ("docs/b/c.md", ""),
        ];
        assert_eq!(
            refused(&pages),
            ["docs/SUMMARY.md:1: [links] docs/b/c.md is not listed"]
        );
    }
}
