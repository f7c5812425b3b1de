//! A copy of the files that a run of nanoGPT needs, so that the checkout is not modified.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{error::Error, python::absolute, workspace};

/// The copied files. nanoGPT expects all of them in its working directory.
const FILES: [&str; 5] = [
    "train.py",
    "model.py",
    "configurator.py",
    "config/train_shakespeare_char.py",
    PREPARE,
];

const PREPARE: &str = "data/shakespeare_char/prepare.py";
/// The text. `prepare.py` downloads it if it does not exist.
const TEXT: &str = "data/shakespeare_char/input.txt";

/// The settings for CPUs in nanoGPT's README, without the length of the run.
const SETTINGS: [&str; 13] = [
    "config/train_shakespeare_char.py",
    "--device=cpu",
    "--compile=False",
    "--log_interval=1",
    "--block_size=64",
    "--batch_size=12",
    "--n_layer=4",
    "--n_head=4",
    "--n_embd=128",
    "--dropout=0.0",
    "--out_dir=out",
    // Writes a checkpoint at each evaluation, as our run does, instead of only at a lower loss.
    "--always_save_checkpoint=True",
    "--wandb_log=False",
];

/// The copied checkout.
pub struct Checkout {
    folder: PathBuf,
}

impl Checkout {
    /// Copies the required files into a new folder.
    pub fn copy(nanogpt: &Path, folder: &Path) -> Result<Self, Error> {
        let write = |source| Error::Write {
            path: folder.to_owned(),
            source,
        };
        if folder.exists() {
            fs::remove_dir_all(folder).map_err(write)?;
        }
        let copy = Self::at(folder);
        for name in FILES {
            copy.take(&nanogpt.join(name), name)?;
        }
        let text = nanogpt.join(TEXT);
        if text.is_file() {
            copy.take(&text, TEXT)?;
        }
        Ok(copy)
    }

    /// An existing copy.
    pub fn at(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// The folder of the copy.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Prepares `text`, or nanoGPT's own text, and returns the path of the text.
    pub fn prepare(&self, python: &Path, text: Option<&Path>) -> Result<PathBuf, Error> {
        if let Some(text) = text {
            self.take(&absolute(text)?, TEXT)?;
        }
        let mut command = Command::new(python);
        command.arg(PREPARE).current_dir(&self.folder);
        workspace::success(command.stdout(Stdio::null()))?;
        Ok(self.folder.join(TEXT))
    }

    /// The command that trains, without the length of the run.
    pub fn train(&self, python: &Path) -> Command {
        let mut command = Command::new(python);
        command.arg("train.py").args(SETTINGS);
        command.current_dir(&self.folder);
        command
    }

    fn take(&self, from: &Path, name: &str) -> Result<(), Error> {
        let to = self.folder.join(name);
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(|source| Error::Write {
                path: parent.to_owned(),
                source,
            })?;
        }
        fs::copy(from, &to)
            .map(|_| ())
            .map_err(|source| Error::Read {
                path: from.to_owned(),
                source,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_no_checkout_is_refused_by_the_missing_file() {
        let target = workspace::metadata().unwrap().target_directory;
        let folder = target.join(format!("no-checkout-{}", std::process::id()));
        let refused = Checkout::copy(Path::new("nowhere"), folder.as_std_path());
        fs::remove_dir_all(&folder).unwrap();
        let message = refused.err().unwrap().to_string();
        assert!(message.contains("train.py"), "{message}");
    }

    #[test]
    fn what_is_given_is_copied() {
        let target = workspace::metadata().unwrap().target_directory;
        let folder = target.join(format!("checkout-{}", std::process::id()));
        let (from, to) = (folder.join("from"), folder.join("to"));
        for name in FILES {
            let path = from.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        let copy = Checkout::copy(from.as_std_path(), to.as_std_path());
        let copied = FILES.map(|name| fs::read_to_string(to.join(name)).unwrap());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(copied, FILES);
        assert_eq!(copy.unwrap().folder(), to.as_std_path());
    }
}
