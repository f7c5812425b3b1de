//! Tags and a note of a run, in `RUN/labels.json`.

use std::collections::BTreeSet;
use std::path::Path;

use emberlm_data::formats::FileFormat;
use emberlm_system::read::read_text;
use emberlm_system::text::escaped;
use emberlm_system::write::write_whole;
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};

use crate::error::CliError;

const FILE: &str = "labels.json";
/// The largest file that is read: 64 KiB.
const LIMIT: u64 = 1 << 16;
/// The longest tag, in characters.
const LONGEST_TAG: usize = 40;
/// The longest note, in characters.
const LONGEST_NOTE: usize = 4000;

/// The tags and the note that a user gave a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RunLabels {
    /// Short words by which runs are found.
    pub tags: BTreeSet<String>,
    /// A note; empty for none.
    pub note: String,
}

/// The documentation of the file.
pub fn format() -> FileFormat {
    FileFormat::new(FILE, "tags and a note").with_schema(schema_for!(RunLabels))
}

impl RunLabels {
    /// The labels of a run; none if it has no file of them.
    ///
    /// # Errors
    /// The file cannot be read, or is not one of labels.
    pub fn read(run: &Path) -> Result<Self, CliError> {
        let path = run.join(FILE);
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = read_text(&path, LIMIT).map_err(CliError::io("read", &path))?;
        serde_json::from_str(&text).map_err(|error| {
            CliError::new(format!("{} has no labels: {error}", path.display()))
                .hint(r#"it is JSON such as {"tags": ["baseline"], "note": ""}; without the file a run has none"#)
        })
    }

    /// Writes them into a run's folder, whole or not at all.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, run: &Path) -> Result<(), CliError> {
        let path = run.join(FILE);
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| CliError::new(format!("the labels are no JSON: {error}")))?;
        write_whole(&path, text.as_bytes()).map_err(CliError::io("write", &path))
    }
}

/// Parses a tag: characters without spaces, commas and control characters.
///
/// # Errors
/// The rule that it breaks.
pub fn tag(text: &str) -> Result<String, String> {
    let allowed = |c: char| !c.is_whitespace() && !c.is_control() && c != ',';
    let length = text.chars().count();
    match text.chars().all(allowed) && (1..=LONGEST_TAG).contains(&length) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "a tag has 1 to {LONGEST_TAG} characters, without spaces and commas (got {:?})",
            escaped(text)
        )),
    }
}

/// Parses a note.
///
/// # Errors
/// It is too long.
pub fn note(text: &str) -> Result<String, String> {
    match text.chars().count() {
        ..=LONGEST_NOTE => Ok(text.to_owned()),
        length => Err(format!(
            "a note has at most {LONGEST_NOTE} characters (got {length})"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_as_they_were_written() {
        let run = tempfile::tempdir().expect("a folder");
        assert_eq!(
            RunLabels::read(run.path()).expect("none"),
            RunLabels::default()
        );
        let labels = RunLabels {
            tags: ["b".to_owned(), "a".to_owned()].into(),
            note: "two lines\n\u{1b}[31m".to_owned(),
        };
        labels.write(run.path()).expect("written");
        assert_eq!(RunLabels::read(run.path()).expect("labels"), labels);
        std::fs::write(run.path().join(FILE), r#"{"tags": 3}"#).expect("written");
        assert!(RunLabels::read(run.path()).is_err());
    }

    #[test]
    fn tags_are_words() {
        assert_eq!(tag("größer-1"), Ok("größer-1".to_owned()));
        for wrong in ["", "a b", "a,b", "a\u{1b}", &"x".repeat(41)] {
            assert!(tag(wrong).is_err(), "{wrong}");
        }
    }
}
