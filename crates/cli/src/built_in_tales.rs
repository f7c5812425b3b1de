//! The dataset of built-in tales, which is available without any input text.

use std::path::{Path, PathBuf};

use emberlm_data::{Dataset, TalesConfig, write_tales_dataset};

use crate::console;
use crate::error::CliError;

/// Returns the dataset's folder, and writes the dataset first if it does not exist. `command` is recorded as
/// its origin.
///
/// # Errors
/// Returns an error if the dataset cannot be written.
pub fn dataset(command: &str) -> Result<PathBuf, CliError> {
    let folder = Path::new("datasets").join("tales");
    if Dataset::open(&folder).is_err() {
        write_tales_dataset(&folder, &TalesConfig::default(), false, command)?;
        console::note(format_args!(
            "Wrote the built-in tales to {}",
            folder.display()
        ));
    }
    Ok(folder)
}
