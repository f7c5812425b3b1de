//! The records that are no documents.

use serde::{Deserialize, Serialize};

use super::OnError;
use crate::DataError;

/// The number of broken records that are kept to be shown.
const KEPT: usize = 3;

/// The records that were left out, with reasons.
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

    /// The number of records with an empty text: nothing is wrong with them, but there is no document either.
    pub fn empty(&self) -> u64 {
        self.empty
    }

    /// The first broken records: file, record and reason.
    pub fn first(&self) -> &[String] {
        &self.first
    }

    /// A broken record: `error` is given back where it is to end it all, and kept in mind where not.
    ///
    /// # Errors
    /// `error` itself, by `on_error`.
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

    /// A record without text.
    pub fn empty_record(&mut self) {
        self.empty += 1;
    }

    /// Takes another input's into account, which comes after these.
    pub fn add(&mut self, other: &Self) {
        self.broken += other.broken;
        self.empty += other.empty;
        let room = KEPT - self.first.len();
        self.first.extend(other.first.iter().take(room).cloned());
    }
}
