//! The files that the trainer writes into a checkpoint: the model, the optimizer's state and the run's state.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use emberlm_checkpoint::checkpoint::{OPTIMIZER, SETTINGS, STATE, TRAINING};
use emberlm_checkpoint::write::{PartialCheckpoint, metadata, write_json, write_model};
use emberlm_checkpoint::{CheckpointError, Description, SourceFiles};
use emberlm_data::Tokenizer;
use emberlm_kernels::Backend;
use emberlm_model::weights;

use super::State;
use crate::objective::model::TrainingModel;
use crate::optimizer::Snapshot;

/// The description of a run's model, shared by all its checkpoints.
#[derive(Debug)]
pub struct About {
    /// The model.
    pub description: Description,
    /// The tokenizer, if there is one that has to be written.
    pub tokenizer: Option<Tokenizer>,
    /// The files of the Hugging Face directory that the run started from, if any.
    pub source: SourceFiles,
}

/// The contents of a checkpoint other than the optimizer's state. Tensors are handles, so training can continue while they are written.
#[derive(Clone)]
pub struct Contents<B: Backend> {
    /// The weights to use the model with.
    pub model: TrainingModel<B>,
    /// The weights that training resumes from, if they differ from `model`.
    pub training: Option<TrainingModel<B>>,
    /// The description of the model.
    pub about: Arc<About>,
    /// The run's state.
    pub state: State,
}

/// The optimizer's state of a checkpoint.
pub enum OptimizerState<B: Backend> {
    /// The state of a single process, which is to be written.
    Held(Snapshot<B>),
    /// The checkpoint into which all ranks have written their state.
    Written(PartialCheckpoint),
}

/// Writes a checkpoint into a run's directory, replacing any checkpoint of the same step.
///
/// # Errors
/// A file cannot be written. No partial checkpoint remains.
pub fn write<B: Backend>(
    run: &Path,
    optimizer: OptimizerState<B>,
    contents: &Contents<B>,
) -> Result<PathBuf, CheckpointError> {
    let partial = match optimizer {
        OptimizerState::Held(snapshot) => {
            let partial = PartialCheckpoint::create(run, contents.state.step)?;
            snapshot.save(&partial.path().join(OPTIMIZER))?;
            partial
        }
        OptimizerState::Written(partial) => partial,
    };
    fill(partial.path(), contents)?;
    partial.publish()
}

/// Writes all files but the optimizer's state, which is there already.
fn fill<B: Backend>(folder: &Path, contents: &Contents<B>) -> Result<(), CheckpointError> {
    let mut others = vec![OPTIMIZER, STATE];
    if let Some(training) = &contents.training {
        let tensors = weights::device_tensors(training);
        weights::save_own(&tensors, metadata(), &folder.join(TRAINING))?;
        others.push(TRAINING);
    }
    write_json(&folder.join(STATE), &contents.state)?;
    if let Some(settings) = &contents.state.settings {
        let path = folder.join(SETTINGS);
        fs::write(&path, settings).map_err(CheckpointError::file("write", &path))?;
        others.push(SETTINGS);
    }
    let About {
        description,
        tokenizer,
        source,
    } = contents.about.as_ref();
    others.extend(source.write(folder)?);
    let model = &contents.model.model;
    write_model(folder, model, description, tokenizer.as_ref(), &others)
}
