//! The files that the trainer writes into a checkpoint: the model, the optimizer's state and the run's state.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use emberlm_checkpoint::checkpoint::{OPTIMIZER, STATE, TRAINING};
use emberlm_checkpoint::write::{metadata, save_weights, write_json, write_model};
use emberlm_checkpoint::{CheckpointError, Description, SourceFiles};
use emberlm_data::Tokenizer;
use emberlm_kernels::Backend;
use emberlm_model::{Decoder, weights};

use super::State;
use crate::optimizer::Snapshot;

/// The description of a run's model, shared by all its checkpoints.
#[derive(Debug)]
pub struct About {
    /// The model and its tokenizer.
    pub description: Description,
    /// The tokenizer, if the description refers to a tokenizer file.
    pub tokenizer: Option<Tokenizer>,
    /// The files of the Hugging Face directory that the run started from, if any.
    pub source: SourceFiles,
}

/// The contents of a checkpoint. Tensors are handles, so training can continue while they are written.
#[derive(Clone)]
pub struct Contents<B: Backend> {
    /// The weights to use the model with.
    pub decoder: Decoder<B>,
    /// The weights that training resumes from, if they differ from `decoder`.
    pub training: Option<Decoder<B>>,
    /// The optimizer's state.
    pub optimizer: Snapshot<B>,
    /// The description of the model.
    pub about: Arc<About>,
    /// The run's state.
    pub state: State,
}

/// Writes a checkpoint into a run's directory, replacing any checkpoint of the same step.
///
/// # Errors
/// A file cannot be written. No partial checkpoint remains.
pub fn write<B: Backend>(run: &Path, contents: &Contents<B>) -> Result<PathBuf, CheckpointError> {
    emberlm_checkpoint::write::write(run, contents.state.step, |folder| fill(folder, contents))
}

fn fill<B: Backend>(folder: &Path, contents: &Contents<B>) -> Result<(), CheckpointError> {
    let mut others = vec![OPTIMIZER, STATE];
    if let Some(training) = &contents.training {
        save_weights(folder, TRAINING, training)?;
        others.push(TRAINING);
    }
    let moments = contents.optimizer.tensors();
    weights::save_own(&moments, metadata(), &folder.join(OPTIMIZER))?;
    write_json(&folder.join(STATE), &contents.state)?;
    let About {
        description,
        tokenizer,
        source,
    } = contents.about.as_ref();
    others.extend(source.write(folder)?);
    write_model(
        folder,
        &contents.decoder,
        description,
        tokenizer.as_ref(),
        &others,
    )
}
