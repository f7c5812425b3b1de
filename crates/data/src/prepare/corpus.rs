//! The inputs of both splits, including standard input.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::{PrepareOptions, SplitRule};
use crate::staging::{INPUT_FILE, sync_folder};
use crate::{DataError, Input, InputOptions, STANDARD_INPUT, Split, expand};

/// All inputs in order. Those named for the validation split come last.
pub(super) struct Corpus {
    /// The inputs.
    pub(super) inputs: Vec<Input>,
    /// The index of the first validation input, if the split is by file.
    val_from: usize,
    /// The rule that selects the validation split.
    pub(super) rule: SplitRule,
}

impl Corpus {
    /// Expands files, folders and patterns, and selects the default split rule.
    pub(super) fn expand(paths: &[PathBuf], options: &PrepareOptions) -> Result<Self, DataError> {
        let mut inputs = expand(paths, &options.input)?;
        let val_from = inputs.len();
        if !options.val.is_empty() {
            inputs.extend(expand(&options.val, &options.input)?);
        }
        if inputs
            .iter()
            .filter(|input| is_standard_input(input))
            .count()
            > 1
        {
            let reason = "standard input can be read once only";
            return Err(DataError::Contradiction { reason });
        }
        let rule = options.split.unwrap_or({
            if !options.val.is_empty() {
                SplitRule::File
            } else if inputs.iter().any(|input| input.format.has_records()) {
                SplitRule::Hash
            } else {
                SplitRule::Position
            }
        });
        Ok(Self {
            inputs,
            val_from,
            rule,
        })
    }

    /// The split of an input, if the split is by file.
    pub(super) fn split_of(&self, input: usize) -> Option<Split> {
        (self.rule == SplitRule::File).then_some(match input < self.val_from {
            true => Split::Train,
            false => Split::Val,
        })
    }

    /// The total size of the input files in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.inputs.iter().map(|input| input.bytes).sum()
    }

    /// Returns true if standard input is one of the inputs.
    pub(super) fn has_standard_input(&self) -> bool {
        self.inputs.iter().any(is_standard_input)
    }

    /// Copies standard input into `folder` and replaces its input by the copy, because it may be read twice. A
    /// complete copy by an earlier process is used instead.
    pub(super) fn spool(&mut self, folder: &Path, options: &InputOptions) -> Result<(), DataError> {
        let Some(input) = self
            .inputs
            .iter_mut()
            .find(|input| is_standard_input(input))
        else {
            return Ok(());
        };
        let path = folder.join(INPUT_FILE);
        if !path.exists() {
            let part = folder.join("stdin.part");
            let mut file = File::create(&part).map_err(DataError::io("write", &part))?;
            copy(&mut io::stdin().lock(), &mut file, &part)?;
            let done = || file.sync_all().and_then(|()| fs::rename(&part, &path));
            done().map_err(DataError::io("write", &path))?;
            sync_folder(folder)?;
        }
        *input = Input::detect(&path, input.name.clone(), options)?;
        Ok(())
    }
}

fn is_standard_input(input: &Input) -> bool {
    input.path == Path::new(STANDARD_INPUT)
}

/// Copies all of `from` to `to`. Unlike [`io::copy`], the error states which side failed.
fn copy(from: &mut impl io::Read, to: &mut File, path: &Path) -> Result<(), DataError> {
    let mut buffer = vec![0; 1 << 18];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(DataError::io("read", Path::new("standard input"))(error)),
        };
        io::Write::write_all(to, &buffer[..count]).map_err(DataError::io("write", path))?;
    }
}
