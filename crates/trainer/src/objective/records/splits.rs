//! The records of a run, divided into those to train on and those to evaluate on.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use emberlm_data::{DataError, Shuffle};

use crate::config::DataConfig;
use crate::error::TrainError;

/// The seed that selects the validation split, so that the runs of a sweep evaluate on the same records.
const HELD_OUT: u64 = 0x6865_6c64_206f_7574;
/// One of this many records is in the validation split.
const HELD_OUT_OF: usize = 10;

/// Records of both splits, with the files that they come from.
pub(in crate::objective) struct RecordSplits<T> {
    pub(in crate::objective) train: Vec<T>,
    pub(in crate::objective) validation: Vec<T>,
    pub(in crate::objective) path: PathBuf,
    pub(in crate::objective) validation_path: PathBuf,
}

impl<T> RecordSplits<T> {
    /// Reads the records of a run with `read`. Without a validation file, a tenth of the records is the
    /// validation split.
    ///
    /// # Errors
    /// A file cannot be read, or a record is broken; there are several datasets, or too few records.
    pub(in crate::objective) fn read(
        data: &DataConfig,
        read: impl Fn(&PathBuf) -> Result<Vec<T>, DataError>,
    ) -> Result<Self, TrainError> {
        if !data.mix.is_empty() {
            let rule = "must be records: a mix is not supported with this objective";
            return Err(refuse(String::new(), rule));
        }
        let read = |path: &PathBuf| read(path).map_err(TrainError::Records);
        let mut train = read(&data.dataset)?;
        let is_held_out = data.validation.as_os_str().is_empty();
        let validation = match is_held_out {
            true => hold_out(&mut train),
            false => read(&data.validation)?,
        };
        let validation_path = match is_held_out {
            true => data.dataset.clone(),
            false => data.validation.clone(),
        };
        let splits = Self {
            train,
            validation,
            path: data.dataset.clone(),
            validation_path,
        };
        splits.check_count()?;
        Ok(splits)
    }

    /// The records of both splits.
    pub(in crate::objective) fn all(&self) -> impl Iterator<Item = &T> {
        self.train.iter().chain(&self.validation)
    }

    /// Converts the records of each split, which come from the file that `convert` is given.
    ///
    /// # Errors
    /// Those of `convert`; no record of a split is left.
    pub(in crate::objective) fn convert<U>(
        self,
        mut convert: impl FnMut(Vec<T>, &Path) -> Result<Vec<U>, TrainError>,
    ) -> Result<RecordSplits<U>, TrainError> {
        let converted = RecordSplits {
            train: convert(self.train, &self.path)?,
            validation: convert(self.validation, &self.validation_path)?,
            path: self.path,
            validation_path: self.validation_path,
        };
        converted.check_count()?;
        Ok(converted)
    }

    /// Checks that neither split is empty.
    fn check_count(&self) -> Result<(), TrainError> {
        if self.train.is_empty() || self.validation.is_empty() {
            let rule = "must have at least 2 records, one of them to evaluate on";
            return Err(refuse(self.path.display().to_string(), rule));
        }
        Ok(())
    }
}

fn refuse(value: String, rule: &str) -> TrainError {
    TrainError::Setting {
        table: "data",
        field: "dataset",
        value,
        rule: rule.to_owned(),
    }
}

/// Removes a tenth of the records, at least one, chosen by their number.
fn hold_out<T>(records: &mut Vec<T>) -> Vec<T> {
    let count = records.len();
    if count < 2 {
        return Vec::new();
    }
    let order = Shuffle::new(HELD_OUT, count as u64);
    let held: BTreeSet<u64> = (0..count.div_ceil(HELD_OUT_OF) as u64)
        .map(|index| order.at(index))
        .collect();
    let (mut rest, mut out) = (Vec::with_capacity(count), Vec::with_capacity(held.len()));
    for (number, record) in (0..).zip(records.drain(..)) {
        match held.contains(&number) {
            true => out.push(record),
            false => rest.push(record),
        }
    }
    *records = rest;
    out
}
