//! The dataset of the built-in tales, which is there without any text.

use std::path::{Path, PathBuf};

use emberlm_data::{Dataset, TalesConfig, write_tales_dataset};

use crate::console;
use crate::error::CliError;

/// Its folder; it is made by `command` where it is not there yet.
///
/// # Errors
/// It cannot be written.
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
