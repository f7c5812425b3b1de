//! The circumstances of a run's inputs, and the loaders of its batches.

use burn::tensor::Device;
use emberlm_data::{ChatTemplateSpec, Tokenizer};
use emberlm_kernels::TrainingBackend;
use emberlm_model::TransformerConfig;
use emberlm_model::hugging_face::HeadStyle;

use super::RunStart;
use crate::checkpoint::State;
use crate::config::{DataConfig, RunConfig, TrainConfig};
use crate::data::TrainingData;
use crate::data::file_check::FileCheck;
use crate::data::identity::DataIdentity;
use crate::error::TrainError;
use crate::objective::loader::TrainLoader;
pub use crate::objective::resolve_model;
pub(crate) use crate::objective::{DataContext, RunInputs};
use crate::peers::Rank;
use crate::run::resume;

mod epoch;

pub(super) use epoch::sequence_tokens;
pub use epoch::{EpochSize, epoch_size};

/// The model of a run, and its training settings with the longest sequences of its data in place of their limits, for the
/// prediction of its memory.
///
/// # Errors
/// The data cannot be opened, or does not fit the model.
pub fn sized(
    config: &RunConfig,
    start: &RunStart,
    tokenizer: Option<Tokenizer>,
    chat_template: Option<ChatTemplateSpec>,
) -> Result<(TransformerConfig, TrainConfig), TrainError> {
    let mut config = config.clone();
    if config.model.architecture.is_decoder() && !config.reads_records() {
        let data = TrainingData::open(&config.data)?;
        let model = resolve_model(&mut config, data.first())?;
        return Ok((model, config.train));
    }
    let circumstances = Circumstances {
        start,
        heads: None,
        tokenizer,
        chat_template,
    };
    let inputs = RunInputs::open(&mut config, &circumstances)?;
    let train = inputs.sized(&config.train);
    Ok((inputs.model, train))
}

/// The circumstances of a run that its inputs depend on, other than its configuration.
pub(super) struct Circumstances<'a> {
    pub(super) start: &'a RunStart,
    /// The form of the heads of the encoder that the weights come from.
    pub(super) heads: Option<HeadStyle>,
    /// The tokenizer of the weights.
    pub(super) tokenizer: Option<Tokenizer>,
    /// The chat template of the weights.
    pub(super) chat_template: Option<ChatTemplateSpec>,
}

impl DataContext for Circumstances<'_> {
    fn is_resumed(&self) -> bool {
        self.start.checkpoint().is_some()
    }

    fn heads(&self) -> Option<&HeadStyle> {
        self.heads.as_ref()
    }

    fn check_resumed(
        &self,
        config: &DataConfig,
        tokenizer: &Tokenizer,
        identities: &[DataIdentity],
    ) -> Result<(), TrainError> {
        let folders = config.folders();
        match (self.start.checkpoint(), self.start.fork()) {
            (Some(checkpoint), None) => {
                resume::check_data(checkpoint, tokenizer, identities, &folders)
            }
            (Some(checkpoint), Some(_)) => resume::check_tokenizer(checkpoint, tokenizer, &folders),
            (None, _) => Ok(()),
        }
    }

    fn chat_template(&self) -> Option<ChatTemplateSpec> {
        let description = self
            .start
            .checkpoint()
            .and_then(|checkpoint| checkpoint.description.as_ref());
        match description {
            Some(description) => description.chat_template.clone(),
            None => self.chat_template.clone(),
        }
    }

    fn tokenizer(&self, data: &DataConfig) -> Result<Tokenizer, TrainError> {
        if let Some(checkpoint) = self.start.checkpoint()
            && let Some(tokenizer) = checkpoint.tokenizer()?
        {
            return Ok(tokenizer);
        }
        if let Some(tokenizer) = &self.tokenizer {
            return Ok(tokenizer.clone());
        }
        let choice = &data.tokenizer;
        if choice.is_empty() {
            return Err(TrainError::Setting {
                table: "data",
                field: "tokenizer",
                value: "\"\"".to_owned(),
                rule: "must be set for records, unless the model to start from has a tokenizer"
                    .to_owned(),
            });
        }
        Ok(Tokenizer::from_choice(&choice.parse()?)?)
    }
}

impl RunInputs {
    /// Starts the verification of files without block hashes.
    pub(super) fn check_files(&self) -> FileCheck {
        FileCheck::start(self.source.splits().chain(self.validation.splits()))
    }

    /// The loader of a rank, for a run at `state`.
    ///
    /// # Errors
    /// The weights of a stage are not ones of the datasets.
    pub(super) fn loader<B: TrainingBackend>(
        &self,
        config: &RunConfig,
        state: &State,
        rank: Rank,
        device: &Device<B>,
    ) -> Result<TrainLoader<Device<B>>, TrainError> {
        let train = &config.train;
        let weights = config.data.weights()?;
        let mut source = self.source.clone();
        for change in train.weight_changes(&weights) {
            // The first stage also holds for the data before a fork.
            let first = match change.step {
                0 => 0,
                step => state.sequences_at(step, train),
            };
            source = source.with_mix(|mix| change.applied_to(mix, first))?;
        }
        let first_window = match train.overfit_batch {
            true => 0,
            false => state.sequences_at(state.step, train),
        };
        // The ranks share the micro-batches evenly.
        let of_step = train.accumulation / rank.world_size();
        Ok(TrainLoader {
            source,
            first_window,
            micro_batch: train.micro_batch,
            repeated: train.overfit_batch.then_some(of_step),
            rank,
            workers: train.loader_workers,
            windows: state.sequences_at(train.steps, train),
            device: device.clone(),
        })
    }
}
