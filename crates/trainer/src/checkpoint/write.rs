//! The files that the trainer writes into a checkpoint: the model, the optimizer's state and the run's state.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use emberlm_checkpoint::checkpoint::{MODEL, OPTIMIZER, SETTINGS, STATE, TRAINING};
use emberlm_checkpoint::write::{
    PartialCheckpoint, metadata, write_json, write_manifest, write_model,
};
use emberlm_checkpoint::{CheckpointError, Description, SourceFiles};
use emberlm_data::{ChatTemplateSpec, TOKENIZER_FILE, Tokenizer};
use emberlm_kernels::Backend;
use emberlm_model::families::Family;
use emberlm_model::hugging_face::{CONFIG_FILE, ExportOptions, export};
use emberlm_model::weights;
use serde_json::{Map, Value};

use super::State;
use crate::objective::model::TrainingModel;
use crate::optimizer::Snapshot;

/// The description of a run's model, shared by all its checkpoints.
#[derive(Debug)]
pub struct About {
    /// The model.
    pub model: AboutModel,
    /// The tokenizer, if there is one that has to be written.
    pub tokenizer: Option<Tokenizer>,
    /// The files of the Hugging Face directory that the run started from, if any.
    pub source: SourceFiles,
}

/// The form in which a checkpoint describes its model.
#[derive(Debug)]
pub enum AboutModel {
    /// A decoder, or an adapter of any model, by this project's description.
    Described(Box<Description>),
    /// An encoder or an encoder–decoder, as a Hugging Face directory.
    HuggingFace {
        /// The family in whose form it is written.
        family: Family,
        /// Fields of `config.json` that do not affect the model's output.
        fields: Map<String, Value>,
    },
}

impl AboutModel {
    /// The chat template of a decoder's training conversations, if any.
    pub(crate) fn chat_template(&self) -> Option<&ChatTemplateSpec> {
        match self {
            Self::Described(description) => description.chat_template.as_ref(),
            Self::HuggingFace { .. } => None,
        }
    }
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
        model,
        tokenizer,
        source,
    } = contents.about.as_ref();
    match (model, &contents.model.model) {
        (AboutModel::Described(description), model) => {
            others.extend(source.write(folder)?);
            write_model(folder, model, description, tokenizer.as_ref(), &others)
        }
        (AboutModel::HuggingFace { family, fields }, model) => {
            others.extend(source.export(folder)?);
            let options = ExportOptions {
                shard_bytes: u64::MAX,
                fields: fields.clone(),
                family: Some(*family),
                ..ExportOptions::default()
            };
            export(model, folder, &options)?;
            others.extend([MODEL, CONFIG_FILE]);
            if let Some(tokenizer) = tokenizer {
                let path = folder.join(TOKENIZER_FILE);
                let json = tokenizer.to_tokenizer_json();
                fs::write(&path, json).map_err(CheckpointError::file("write", &path))?;
                others.push(TOKENIZER_FILE);
            }
            write_manifest(folder, &others)
        }
    }
}
