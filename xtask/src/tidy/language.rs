//! Checks the language of comments, messages and documentation: the phrases of `xtask/language.toml` are
//! refused, as are doc comments that begin with a question word.

use std::path::Path;

use serde::Deserialize;

use super::{Finding, lexer::lines, links::prose};
use crate::error::Error;

const RULE: &str = "language";
/// The list of refused phrases, relative to the workspace's root.
const LIST: &str = "xtask/language.toml";

/// A word with its line number, counted from 1. A word without letters is a boundary that phrases do not cross.
type Word = (usize, String);

/// The refused phrases and openings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Language {
    /// Refused first words of doc comments.
    openings: Vec<String>,
    /// Files that are not prose: corpora, and data of other programs.
    exempt: Vec<String>,
    /// The refused phrases with their replacements.
    term: Vec<Term>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Term {
    /// The replacement.
    write: String,
    /// The refused phrases, as whole words in any case.
    not: Vec<String>,
}

impl Language {
    /// Reads the list.
    ///
    /// # Errors
    /// The file cannot be read or is not a list of terms.
    pub fn read(root: &Path) -> Result<Self, Error> {
        super::parse(&root.join(LIST))
    }

    /// Checks one Rust, Markdown, HTML or JavaScript file.
    pub fn check(&self, file: &str, text: &str) -> Vec<Finding> {
        if self.exempt.iter().any(|exempt| exempt == file) {
            return Vec::new();
        }
        let (words, comments) = match file.rsplit_once('.') {
            Some((_, "rs")) => (rust_words(text), rust_comments(text)),
            // JavaScript has Rust's comments and double-quoted strings.
            Some((_, "js")) => (rust_words(text), script_comments(text)),
            Some((_, "md")) => (markdown_words(text), Vec::new()),
            _ => (words(1, text), script_comments(text)),
        };
        let mut findings = self.phrases(file, &words);
        findings.extend(self.openings(file, &comments));
        findings.sort_by_key(|finding| finding.line);
        findings
    }

    fn phrases(&self, file: &str, words: &[Word]) -> Vec<Finding> {
        let mut findings = Vec::new();
        for term in &self.term {
            for phrase in &term.not {
                let wanted: Vec<&str> = phrase.split(' ').collect();
                let matches = words
                    .windows(wanted.len())
                    .filter(|window| window.iter().map(|(_, word)| word).eq(wanted.iter()));
                findings.extend(matches.map(|window| {
                    let line = window.first().map_or(0, |(line, _)| *line);
                    let message = format!("write \"{}\", not \"{phrase}\"", term.write);
                    Finding::new(file, line, RULE, message)
                }));
            }
        }
        findings
    }

    /// Checks the first words of `comments`, which are the first lines of comments.
    fn openings(&self, file: &str, comments: &[(usize, String)]) -> Vec<Finding> {
        let refused = comments.iter().filter_map(|(line, comment)| {
            let (_, first) = words(*line, comment).into_iter().next()?;
            self.openings.contains(&first).then(|| {
                let message = format!(
                    "a doc comment begins with a noun phrase or a verb in the third person, not with \"{first}\""
                );
                Finding::new(file, *line, RULE, message)
            })
        });
        refused.collect()
    }
}

/// The words of a text that begins at a line. Code in backticks is a boundary.
fn words(first_line: usize, text: &str) -> Vec<Word> {
    let mut found: Vec<Word> = Vec::new();
    let mut word = String::new();
    let (mut line, mut in_code) = (first_line, false);
    for next in text.chars().chain(['\n']) {
        let next = if next == '’' { '\'' } else { next };
        let letter = next.is_alphanumeric() || matches!(next, '_' | '-' | '\'');
        if letter && !in_code {
            word.extend(next.to_lowercase());
            continue;
        }
        let ended = std::mem::take(&mut word);
        let ended = ended.trim_matches('\'');
        if !ended.is_empty() {
            found.push((line, ended.to_owned()));
        }
        match next {
            '\n' => line += 1,
            '`' => in_code = !in_code,
            _ => {}
        }
        if !next.is_whitespace() {
            found.push((line, String::new()));
        }
    }
    found
}

/// The words of a file's comments, and of its string literals.
fn rust_words(text: &str) -> Vec<Word> {
    let lines = lines(text);
    let comments: String = lines
        .iter()
        .map(|line| format!("{}\n", line.comment.trim_start_matches(['/', '!'])))
        .collect();
    let mut found = words(1, &comments);
    for (at, line) in lines.iter().enumerate() {
        // A literal of one word is a name, not a message.
        for literal in line.strings.iter().filter(|literal| literal.contains(' ')) {
            let literal = literal.replace("\\\n", " \n").replace("\\n", ".");
            found.push((at + 1, String::new()));
            found.extend(words(at + 1, &literal));
        }
    }
    found
}

/// The first line of each doc comment.
fn rust_comments(text: &str) -> Vec<(usize, String)> {
    let is_doc = |comment: &str| comment.starts_with(['/', '!']);
    let lines = lines(text);
    let before = std::iter::once("").chain(lines.iter().map(|line| line.comment.as_str()));
    let first = lines.iter().enumerate().zip(before);
    first
        .filter(|((_, line), before)| is_doc(&line.comment) && !is_doc(before))
        .map(|((at, line), _)| (at + 1, line.comment.chars().skip(1).collect()))
        .collect()
}

/// The words of the prose, without code blocks.
fn markdown_words(text: &str) -> Vec<Word> {
    let mut lines = vec![""; text.lines().count()];
    for (line, text) in prose(text) {
        lines[line - 1] = text;
    }
    words(1, &lines.join("\n"))
}

/// The first line of each comment on a separate line.
fn script_comments(text: &str) -> Vec<(usize, String)> {
    let comment = |line: &str| {
        let line = line.trim_start();
        let marks = ["//", "/**", "/*", "*", "<!--"];
        let mark = marks.into_iter().find(|mark| line.starts_with(mark))?;
        Some(line.trim_start_matches(mark).to_owned())
    };
    let mut within = false;
    let mut first = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let found = comment(line);
        if let Some(found) = found.as_ref().filter(|_| !within) {
            first.push((at + 1, found.clone()));
        }
        within = found.is_some();
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(file: &str, text: &str) -> Vec<(usize, String)> {
        let list = "openings = [\"what\"]\nexempt = [\"b.md\"]\n[[term]]\nwrite = \"continue\"\nnot = [\"zig zag\", \"zog's\"]\n";
        let language: Language = toml::from_str(list).unwrap();
        let found = language.check(file, text).into_iter();
        found
            .map(|finding| (finding.line, finding.message))
            .collect()
    }

    fn refused(file: &str, text: &str) -> Vec<usize> {
        findings(file, text)
            .into_iter()
            .map(|(line, _)| line)
            .collect()
    }

    #[test]
    fn a_finding_names_the_phrase_and_its_replacement() {
        let found = findings("a.md", "The run zig zag.");
        assert_eq!(
            found,
            [(1, "write \"continue\", not \"zig zag\"".to_owned())]
        );
    }

    #[test]
    fn phrases_are_found_in_prose_but_not_in_code() {
        let rust = "/// It Zig\n/// zag.\nfn zig_zag() { print(\"zig zag\", \"zig \\\n zag\", zig, zag) } // zog’s\n";
        assert_eq!(refused("a.rs", rust), [1, 3, 3, 4]);
        let markdown = "zig\nzag\n```sh\nzig zag\n```\n`zig zag` zig-zag, zig. Zag\n";
        assert_eq!(refused("a.md", markdown), [1]);
        assert!(refused("b.md", markdown).is_empty());
        assert_eq!(refused("a.html", "<p>\n<b>zig zag</b>"), [2]);
    }

    #[test]
    fn the_first_word_of_a_doc_comment_is_checked() {
        let rust = "//! What.\n\n/// The loss\n/// what\nfn a() {}\n// What a comment\n/// What: it is\nfn b() {}";
        assert_eq!(refused("a.rs", rust), [1, 7]);
        let script = "/** What it is. */\nf();\n// Draws\n// what\n";
        assert_eq!(refused("a.js", script), [1]);
    }
}
