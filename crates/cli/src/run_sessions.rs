//! The starts and resumptions of a run, stored in `RUN/sessions.json`: command lines and machines.

use std::collections::BTreeMap;
use std::path::Path;

use emberlm_data::formats::FileFormat;
use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};
use emberlm_system::write::write_whole;
use emberlm_trainer::events;
use emberlm_trainer::folder::check_no_link;
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};

use crate::backend::Placement;
use crate::backend::machine::Machine;
use crate::error::CliError;
use crate::shell::shell_word;

const FILE: &str = "sessions.json";

/// The processes that trained a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunSessions {
    /// The sessions, in their order.
    pub sessions: Vec<Session>,
}

/// A process that started or resumed a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// Seconds since 1970.
    pub time: f64,
    /// Steps completed before.
    pub step: usize,
    /// The version of the program.
    pub version: String,
    /// The backend.
    pub backend: String,
    /// The command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The hardware and system, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub machine: BTreeMap<String, String>,
}

/// The documentation of the file.
pub fn format() -> FileFormat {
    FileFormat::new(FILE, "the command line and the machine of each start")
        .with_schema(schema_for!(RunSessions))
}

impl RunSessions {
    /// Reads a run's sessions. Returns none for runs of earlier versions.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or does not hold sessions.
    pub fn read(run: &Path) -> Result<Self, CliError> {
        let path = run.join(FILE);
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = read_text(&path, DESCRIPTION_LIMIT).map_err(CliError::io("read", &path))?;
        serde_json::from_str(&text)
            .map_err(|error| CliError::new(format!("{} has no sessions: {error}", path.display())))
    }

    /// Adds a session to a run's file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or written.
    pub fn add(run: &Path, session: Session) -> Result<(), CliError> {
        let path = run.join(FILE);
        check_no_link(&path)?;
        let mut all = Self::read(run)?;
        all.sessions.push(session);
        let text = serde_json::to_string_pretty(&all).map_err(|error| {
            CliError::new(format!("the sessions cannot be written as JSON: {error}"))
        })?;
        write_whole(&path, text.as_bytes()).map_err(CliError::io("write", &path))
    }
}

impl Session {
    /// The session of this process, which continues after `step`.
    pub fn of_this_process(placement: Placement, step: usize) -> Self {
        let words = std::env::args_os().skip(1);
        let words = words.map(|word| shell_word(&word.to_string_lossy()));
        let words: Vec<String> = std::iter::once("emberlm".to_owned()).chain(words).collect();
        let mut machine: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in Machine::of(placement).rows() {
            machine
                .entry(name.to_owned())
                .and_modify(|known| *known += &format!("; {value}"))
                .or_insert(value);
        }
        Self {
            time: events::now(),
            step,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            backend: placement.name().to_owned(),
            command: Some(words.join(" ")),
            machine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_kept_in_order() {
        let run = tempfile::tempdir().expect("a folder");
        let session = |step| Session {
            time: 1.0,
            step,
            version: "1".into(),
            backend: "flex".into(),
            command: Some("emberlm train".into()),
            machine: [("CPU".to_owned(), "a CPU".to_owned())].into(),
        };
        assert_eq!(
            RunSessions::read(run.path()).expect("none"),
            RunSessions::default()
        );
        RunSessions::add(run.path(), session(0)).expect("written");
        RunSessions::add(run.path(), session(10)).expect("written");
        let read = RunSessions::read(run.path()).expect("sessions");
        assert_eq!(read.sessions, [session(0), session(10)]);
        std::fs::write(run.path().join(FILE), "[]").expect("written");
        assert!(RunSessions::add(run.path(), session(20)).is_err());
    }
}
