//! The log-probabilities of the reference model: the weights that a run starts with. They are computed once, before the first
//! step, and stored with the run.

use std::path::Path;

use burn::module::ParamId;
use burn::tensor::Tensor;
use emberlm_kernels::Backend;
use emberlm_model::weights::{ParamVisitor, visit_params};
use emberlm_system::{read, write};
use serde::{Deserialize, Serialize};

use super::pairs::PairSet;
use crate::data::identity::DataIdentity;
use crate::error::TrainError;
use crate::objective::model::TrainingModel;
use crate::stop::StopSignal;

/// The file in a run's directory.
pub(crate) const FILE: &str = "reference.json";
/// The longest file that is read, in bytes.
const MOST_BYTES: u64 = 1 << 32;

/// Log-probabilities of the chosen and the rejected completion of each pair, in the order of the files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct References {
    /// The BLAKE3 hash of the reference model's weights.
    model: String,
    data: DataIdentity,
    train: Vec<[f64; 2]>,
    validation: Vec<[f64; 2]>,
}

impl References {
    /// Reads the file of a run; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn open(run: &Path) -> Result<Option<Self>, TrainError> {
        let path = run.join(FILE);
        if !path.exists() {
            return Ok(None);
        }
        let text = read::read_text(&path, MOST_BYTES).map_err(TrainError::file("read", &path))?;
        match serde_json::from_str(&text) {
            Ok(found) => Ok(Some(found)),
            Err(error) => Err(TrainError::References {
                path,
                reason: error.to_string(),
            }),
        }
    }

    /// Writes the file of a run.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&self, run: &Path) -> Result<(), TrainError> {
        let path = run.join(FILE);
        let failed = |error: serde_json::Error| TrainError::References {
            path: path.clone(),
            reason: error.to_string(),
        };
        let text = serde_json::to_vec(self).map_err(failed)?;
        write::write_whole(&path, &text).map_err(TrainError::file("write", &path))
    }

    /// Computes the log-probabilities under `model` in batches of `batch` pairs. `None` if a stop is requested.
    ///
    /// # Errors
    /// A log-probability is not finite.
    pub(crate) fn compute<B: Backend>(
        model: &TrainingModel<B>,
        data: DataIdentity,
        train: &PairSet,
        validation: &PairSet,
        batch: usize,
        stop: &StopSignal,
    ) -> Result<Option<Self>, TrainError> {
        let mut splits = Vec::new();
        for split in [train, validation] {
            match of_split(model, split, batch, stop)? {
                Some(found) => splits.push(found),
                None => return Ok(None),
            }
        }
        let (validation, train) = (splits.pop(), splits.pop());
        Ok(Some(Self {
            model: hash(model),
            data,
            train: train.unwrap_or_default(),
            validation: validation.unwrap_or_default(),
        }))
    }

    /// The reference model of completions that are sampled during the run: only its hash.
    pub(crate) fn of_model<B: Backend>(model: &TrainingModel<B>, data: DataIdentity) -> Self {
        Self {
            model: hash(model),
            data,
            train: Vec::new(),
            validation: Vec::new(),
        }
    }

    /// Returns true if these are the log-probabilities of `data`.
    pub(crate) fn is_of_data(&self, data: &DataIdentity) -> bool {
        self.data == *data
    }

    /// Returns true if these are the log-probabilities of `model`.
    pub(crate) fn is_of_model<B: Backend>(&self, model: &TrainingModel<B>) -> bool {
        self.model == hash(model)
    }

    /// Gives the pairs their log-probabilities.
    pub(crate) fn apply(&self, train: &mut PairSet, validation: &mut PairSet) {
        train.set_references(self.train.clone());
        validation.set_references(self.validation.clone());
    }
}

fn of_split<B: Backend>(
    model: &TrainingModel<B>,
    pairs: &PairSet,
    size: usize,
    stop: &StopSignal,
) -> Result<Option<Vec<[f64; 2]>>, TrainError> {
    let device = model.device();
    let mut references = Vec::with_capacity(pairs.len());
    for batch in pairs.batches(size) {
        if stop.is_requested() {
            return Ok(None);
        }
        let batch = batch.to_tensors::<B>(&device);
        let found = B::run(|| model.completion_log_probabilities(&batch));
        let found = found.concat();
        let (chosen, rejected) = found.split_at(found.len() / 2);
        references.extend(chosen.iter().zip(rejected).map(|(&c, &r)| [c, r]));
    }
    match references.iter().flatten().all(|x| x.is_finite()) && references.len() == pairs.len() {
        true => Ok(Some(references)),
        false => Err(TrainError::NonFiniteReference),
    }
}

/// The BLAKE3 hash of a model's weights.
fn hash<B: Backend>(model: &TrainingModel<B>) -> String {
    let mut visitor = HashVisitor(blake3::Hasher::new());
    visit_params(model, &mut visitor);
    visitor.0.finalize().to_string()
}

struct HashVisitor(blake3::Hasher);

impl<B: Backend> ParamVisitor<B> for HashVisitor {
    fn visit<const D: usize>(&mut self, path: &str, _id: ParamId, value: Tensor<B, D>) {
        self.0.update(path.as_bytes());
        self.0.update(value.into_data().as_bytes());
    }
}
