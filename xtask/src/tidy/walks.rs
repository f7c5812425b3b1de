//! The walks of `docs/architecture.md`: lists of the files that a value passes on its way through the program.
//!
//! A walk is a table whose first column has the paths, below a sentence with their number and their lines. The files must
//! exist, the sentence must be true, and the walk must not become longer than its bound.

use std::collections::BTreeMap;

use super::{ARCHITECTURE, Finding, links::prose};

const RULE: &str = "walks";
/// Lines are rounded up to a multiple of this, so that a small change does not change the document.
const ROUNDED: usize = 100;

/// A walk, and the most files and lines that it may have.
struct Walk {
    heading: &'static str,
    files: usize,
    lines: usize,
}

/// The bounds are the present lengths: lower them when a walk becomes shorter. The aim is 45 files and 10,000 lines.
const WALKS: [Walk; 1] = [Walk {
    heading: "## Follow a token to its update",
    files: 101,
    lines: 21_000,
}];

/// Checks the walks of the document. `sources` are the texts of Rust files by path.
pub fn check(document: &str, sources: &BTreeMap<String, String>) -> Vec<Finding> {
    let lines_of = |path: &str| Some(sources.get(path)?.lines().count());
    let findings = WALKS.iter();
    let findings = findings.flat_map(|walk| walk.check(document, &lines_of));
    findings.collect()
}

impl Walk {
    fn check(&self, text: &str, lines_of: &dyn Fn(&str) -> Option<usize>) -> Vec<Finding> {
        let mut section = prose(text)
            .skip_while(|(_, line)| *line != self.heading)
            .peekable();
        let Some(&(heading, _)) = section.peek() else {
            let message = format!("there is no heading `{}`", self.heading);
            return vec![Finding::new(ARCHITECTURE, 1, RULE, message)];
        };
        let section: Vec<(usize, &str)> = section
            .skip(1)
            .take_while(|(_, line)| !line.starts_with("## "))
            .collect();
        let mut findings = Vec::new();
        let (mut files, mut lines) = (Vec::new(), 0);
        for (number, path) in section
            .iter()
            .flat_map(|(at, row)| paths(row).map(|it| (*at, it)))
        {
            match lines_of(&path) {
                Some(_) if files.contains(&path) => {
                    let message = format!("`{path}` is listed twice");
                    findings.push(Finding::new(ARCHITECTURE, number, RULE, message));
                }
                Some(count) => {
                    lines += count;
                    files.push(path);
                }
                None => {
                    let message = format!("there is no {path}");
                    findings.push(Finding::new(ARCHITECTURE, number, RULE, message));
                }
            }
        }
        let lines = lines.next_multiple_of(ROUNDED);
        let totals = totals(files.len(), lines);
        if !section.iter().any(|(_, line)| line.contains(&totals)) {
            let message = format!("this walk has {totals}: write so above its table");
            findings.push(Finding::new(ARCHITECTURE, heading, RULE, message));
        }
        if files.len() > self.files || lines > self.lines {
            let bound = self::totals(self.files, self.lines);
            let message = format!("this walk has {totals}, more than its bound of {bound}");
            findings.push(Finding::new(ARCHITECTURE, heading, RULE, message));
        }
        findings
    }
}

/// The paths in the first column of a row of a table.
pub(super) fn listed(row: &str) -> impl Iterator<Item = String> {
    let column = row.strip_prefix('|').and_then(|row| row.split('|').next());
    let code = column.unwrap_or_default().split('`').skip(1).step_by(2);
    code.flat_map(expanded)
}

/// The paths of a row of a walk, where `model/nn/norm.rs` is short for `crates/model/src/nn/norm.rs`.
fn paths(row: &str) -> impl Iterator<Item = String> {
    listed(row).filter_map(|path| {
        path.split_once('/')
            .map(|(of_crate, path)| format!("crates/{of_crate}/src/{path}"))
    })
}

/// The paths of `a/{b,c}.rs`: `a/b.rs` and `a/c.rs`.
fn expanded(path: &str) -> Vec<String> {
    let parts = path.split_once('{').and_then(|(before, rest)| {
        let (names, after) = rest.split_once('}')?;
        Some(
            names
                .split(',')
                .map(|name| format!("{before}{name}{after}"))
                .collect(),
        )
    });
    parts.unwrap_or_else(|| vec![path.to_owned()])
}

/// The totals as the document has them.
fn totals(files: usize, lines: usize) -> String {
    match lines {
        1000.. => format!(
            "{files} files and {},{:03} lines",
            lines / 1000,
            lines % 1000
        ),
        _ => format!("{files} files and {lines} lines"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALK: Walk = Walk {
        heading: "## A walk",
        files: 2,
        lines: 1300,
    };

    /// The messages of a document whose files have 600 lines, except those of `data`.
    fn messages(text: &str) -> Vec<String> {
        let lines_of = |path: &str| (!path.contains("/data/")).then_some(620);
        let found = WALK.check(text, &lines_of).into_iter();
        found
            .map(|finding| format!("{} {}", finding.line, finding.message))
            .collect()
    }

    #[test]
    fn a_walk_has_existing_files_true_totals_and_a_bound() {
        let walk = |totals: &str, rows: &str| {
            format!(
                "## A walk\n\nIt has {totals}.\n\n| file | `not/this` |\n{rows}\n## Next\n| `data/x.rs` |\n"
            )
        };
        let two = "| `model/a.rs`, `nn/b/c.rs` | `data/x.rs` |\n";
        assert!(messages(&walk("2 files and 1,300 lines", two)).is_empty());
        assert_eq!(
            messages(&walk("2 files and 1,200 lines", two)),
            ["1 this walk has 2 files and 1,300 lines: write so above its table"]
        );
        assert_eq!(
            messages(&walk(
                "1 files and 700 lines",
                "| `model/a.rs` |\n| `model/a.rs`, `data/x.rs` |\n"
            )),
            [
                "7 `crates/model/src/a.rs` is listed twice",
                "7 there is no crates/data/src/x.rs",
            ]
        );
        let more = "| `model/a.rs`, `nn/{b,c}.rs` |\n";
        assert_eq!(
            messages(&walk("3 files and 1,900 lines", more)),
            [
                "1 this walk has 3 files and 1,900 lines, more than its bound of 2 files and 1,300 lines"
            ]
        );
        assert_eq!(messages("# A"), ["1 there is no heading `## A walk`"]);
    }
}
