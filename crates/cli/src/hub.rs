//! MODEL arguments that are names on the Hugging Face Hub.

use std::path::{Path, PathBuf};

use emberlm_hub::{Hub, ModelName, Progress};
use indicatif::ProgressBar;

use crate::error::CliError;
use crate::progress;

/// Returns the name that `model` is, if it is one on the Hub.
///
/// # Errors
/// It begins like a name and breaks a rule of names.
pub fn name(model: &Path) -> Result<Option<ModelName>, CliError> {
    match model.to_str().filter(|text| ModelName::is_name(text)) {
        Some(text) => Ok(Some(text.parse()?)),
        None => Ok(None),
    }
}

/// Replaces a name on the Hub by the path of its files, which are downloaded if the cache lacks them. A path stays as it
/// is.
///
/// # Errors
/// The name breaks a rule, or the model cannot be downloaded.
pub fn localize(model: &mut PathBuf) -> Result<(), CliError> {
    if let Some(name) = name(model)? {
        *model = open(&name)?;
    }
    Ok(())
}

/// The path of the model's files, which are downloaded if the cache lacks them.
///
/// # Errors
/// The model cannot be downloaded.
pub fn open(name: &ModelName) -> Result<PathBuf, CliError> {
    let mut bar = DownloadBar::default();
    Ok(Hub::from_environment()?.open(name, &mut |now| bar.show(now))?)
}

/// A progress bar that appears with the first byte.
#[derive(Default)]
pub struct DownloadBar(Option<ProgressBar>);

impl DownloadBar {
    /// Shows the progress.
    pub fn show(&mut self, now: Progress<'_>) {
        let bar = self
            .0
            .get_or_insert_with(|| progress::bytes("downloading", now.total));
        bar.set_position(now.done);
    }
}

impl Drop for DownloadBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
