//! Merges the inputs that a fuzzer has found into the corpus of the repository.

use std::{collections::BTreeSet, fs, path::Path};

use super::{
    corpus::{Change, Corpus, LONGEST},
    slice::{self, Fuzzer},
};
use crate::{error::Error, tidy, workspace};

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
    workspace::emptied(&merged)?;
    let mut seeds = BTreeSet::new();
    for folder in &target.seeds {
        for path in tidy::below(&root.join(folder), &|_| true)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let copied = merged.join(format!("{:05}-{name}", seeds.len()));
            fs::copy(&path, &copied).map_err(Error::write(&copied))?;
            seeds.insert(copied);
        }
    }
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
