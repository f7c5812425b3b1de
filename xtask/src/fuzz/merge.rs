//! Merges the inputs that a fuzzer has found into the corpus of the repository.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::{
    corpus::{Change, Corpus, LONGEST, emptied},
    slice::{self, Fuzzer},
};
use crate::{error::Error, tidy};

/// Replaces the corpus of a target by the inputs that add coverage to the seeds: those of the old corpus, and those
/// that the fuzzer has found. `scratch` is a folder for temporary files.
pub fn merge(fuzzer: &Fuzzer, root: &Path, scratch: &Path) -> Result<Change, Error> {
    let target = &fuzzer.target;
    let old = Corpus::read(root, &target.name)?;
    let [candidates, merged] = ["candidates", "merged"].map(|name| scratch.join(name));
    old.unpack(&candidates)?;
    for path in tidy::entries(&fuzzer.found)? {
        let input = fs::read(&path).map_err(Error::read(&path))?;
        if input.len() <= LONGEST {
            let path = candidates.join(path.file_name().unwrap_or_default());
            fs::write(&path, input).map_err(Error::write(&path))?;
        }
    }
    // The merge adds files to its first folder, which begins as a copy of the seeds.
    emptied(&merged)?;
    for seed in &target.seeds {
        copy(&root.join(seed), &merged)?;
    }
    let seeds: BTreeSet<PathBuf> = tidy::entries(&merged)?.into_iter().collect();
    let mut command = fuzzer.command();
    slice::stderr(command.arg("-merge=1").args([&merged, &candidates]))?;
    let mut inputs = Vec::new();
    for path in tidy::entries(&merged)? {
        if !seeds.contains(&path) {
            inputs.push(fs::read(&path).map_err(Error::read(&path))?);
        }
    }
    let (new, left_out) = Corpus::of(inputs);
    new.write(root, &target.name)?;
    Ok(old.change_to(&new, left_out))
}

/// Copies the files below a folder into another one, with numbers in front of their names.
fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    for path in tidy::entries(from)? {
        if path.is_dir() {
            copy(&path, to)?;
            continue;
        }
        let number = tidy::entries(to)?.len();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let copied = to.join(format!("{number:05}-{name}"));
        fs::copy(&path, &copied).map_err(Error::write(&copied))?;
    }
    Ok(())
}
