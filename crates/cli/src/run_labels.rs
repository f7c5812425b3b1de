//! A run's tags and note, stored in `RUN/labels.json`.

use std::collections::BTreeSet;
use std::path::Path;

use emberlm_data::formats::FileFormat;
use emberlm_system::read::read_text;
use emberlm_system::text::escaped;
use emberlm_system::write::write_whole;
use emberlm_trainer::folder::check_no_link;
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};

use crate::error::CliError;

const FILE: &str = "labels.json";
/// Size limit of the file: 64 KiB.
const LIMIT: u64 = 1 << 16;
/// Maximum length of a tag, in characters.
const LONGEST_TAG: usize = 40;
/// Maximum length of a note, in characters.
const LONGEST_NOTE: usize = 4000;

/// Tags and a note that a user attached to a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RunLabels {
    /// Short words for finding the run.
    pub tags: BTreeSet<String>,
    /// A free-form note, possibly empty.
    pub note: String,
}

/// The documentation of the file.
pub fn format() -> FileFormat {
    FileFormat::new(FILE, "tags and a note").with_schema(schema_for!(RunLabels))
}

impl RunLabels {
    /// Reads a run's labels. Returns empty labels if it has no labels file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or does not hold labels.
    pub fn read(run: &Path) -> Result<Self, CliError> {
        let path = run.join(FILE);
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = read_text(&path, LIMIT).map_err(CliError::io("read", &path))?;
        serde_json::from_str(&text).map_err(|error| {
            CliError::new(format!("{} has no labels: {error}", path.display()))
                .hint(r#"the file must be JSON such as {"tags": ["baseline"], "note": ""}"#)
        })
    }

    /// Writes the labels into a run's folder atomically.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write(&self, run: &Path) -> Result<(), CliError> {
        let path = run.join(FILE);
        check_no_link(&path)?;
        let text = serde_json::to_string_pretty(self).map_err(|error| {
            CliError::new(format!("the labels cannot be written as JSON: {error}"))
        })?;
        write_whole(&path, text.as_bytes()).map_err(CliError::io("write", &path))
    }
}

/// Parses a tag, which has no spaces, commas or control characters.
///
/// # Errors
/// Returns the violated rule.
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

/// Parses a note of at most [`LONGEST_NOTE`] characters.
///
/// # Errors
/// Returns an error if the note is too long.
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
    fn labels_survive_a_round_trip() {
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
    fn tags_reject_spaces_commas_and_control_characters() {
        assert_eq!(tag("größer-1"), Ok("größer-1".to_owned()));
        for wrong in ["", "a b", "a,b", "a\u{1b}", &"x".repeat(41)] {
            assert!(tag(wrong).is_err(), "{wrong}");
        }
    }
}
