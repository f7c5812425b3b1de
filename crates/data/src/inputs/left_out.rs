//! Records that are not documents.

use serde::{Deserialize, Serialize};

use super::OnError;
use crate::DataError;

/// The number of broken records whose errors are kept.
const KEPT: usize = 3;

/// The number of skipped records, and the first errors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    broken: u64,
    empty: u64,
    first: Vec<String>,
}

impl LeftOut {
    /// The number of broken records.
    pub fn broken(&self) -> u64 {
        self.broken
    }

    /// The number of records with an empty text. They are valid, but not documents.
    pub fn empty(&self) -> u64 {
        self.empty
    }

    /// The errors of the first broken records: file, record and reason.
    pub fn first(&self) -> &[String] {
        &self.first
    }

    /// Handles a broken record: returns `error` if `on_error` stops, and counts the record otherwise.
    ///
    /// # Errors
    /// Returns `error` if `on_error` is [`OnError::Stop`].
    pub fn broken_record(&mut self, error: DataError, on_error: OnError) -> Result<(), DataError> {
        match on_error {
            OnError::Stop => Err(error),
            OnError::Skip => {
                self.broken += 1;
                if self.first.len() < KEPT {
                    self.first.push(error.to_string());
                }
                Ok(())
            }
        }
    }

    /// Counts a record with an empty text.
    pub fn empty_record(&mut self) {
        self.empty += 1;
    }

    /// Adds the skipped records of a later input.
    pub fn add(&mut self, other: &Self) {
        self.broken += other.broken;
        self.empty += other.empty;
        let room = KEPT - self.first.len();
        self.first.extend(other.first.iter().take(room).cloned());
    }
}
