//! The ancestry of a run that was forked from a checkpoint of another run: `ancestry.json`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use emberlm_system::read::{DESCRIPTION_LIMIT, read_text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::TrainError;
use crate::run::folder::{ANCESTRY_FILE, write_whole};

/// The runs that a run descends from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ancestry {
    /// The run that was forked, then the one that this was forked from, and so on.
    pub ancestors: Vec<Ancestor>,
}

/// A run that another was forked from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ancestor {
    /// The directory at the time of the fork.
    pub run: PathBuf,
    /// Steps completed at the checkpoint.
    pub step: usize,
    /// The settings that the fork changed, by key.
    pub changes: BTreeMap<String, ChangedValue>,
}

/// The values of a changed setting; null where it was absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangedValue {
    /// The value in the checkpoint.
    #[schemars(with = "Option<Value>")]
    pub was: Value,
    /// The value in the fork.
    #[schemars(with = "Option<Value>")]
    pub is: Value,
}

impl Ancestry {
    /// Reads the ancestry of a run. That of a run that was not forked has no ancestors.
    ///
    /// # Errors
    /// The file cannot be read or has another form.
    pub fn read(run: &Path) -> Result<Self, TrainError> {
        let path = run.join(ANCESTRY_FILE);
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = read_text(&path, DESCRIPTION_LIMIT).map_err(TrainError::file("read", &path))?;
        let error = |error: serde_json::Error| TrainError::file("read", &path)(error.into());
        serde_json::from_str(&text).map_err(error)
    }

    /// Writes the ancestry of a run atomically.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, run: &Path) -> Result<(), TrainError> {
        let path = run.join(ANCESTRY_FILE);
        let error = |error: serde_json::Error| TrainError::file("write", &path)(error.into());
        let text = serde_json::to_vec_pretty(self).map_err(error)?;
        write_whole(&path, &text)
    }

    /// The run that was forked.
    pub fn parent(&self) -> Option<&Ancestor> {
        self.ancestors.first()
    }
}
