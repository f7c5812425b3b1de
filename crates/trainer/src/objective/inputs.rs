//! The inputs of a run: its data and its model's configuration.

use std::sync::Arc;

use emberlm_data::{ChatTemplateSpec, Floor, Tokenizer};
use emberlm_model::TransformerConfig;
use emberlm_model::hugging_face::HeadStyle;

use super::validation::Validation;
use super::{PairSet, PromptSet, RecordSet, References, RewardTask, TrainSource, WindowTask};
use crate::config::{DataConfig, ObjectiveConfig, RunConfig, TrainConfig};
use crate::data::TrainingData;
use crate::data::identity::DataIdentity;
use crate::error::TrainError;

/// The inputs of a run.
pub(crate) struct RunInputs {
    pub(crate) model: TransformerConfig,
    /// Tokens per sequence.
    pub(crate) seq_len: usize,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) chat_template: Option<ChatTemplateSpec>,
    pub(crate) identities: Vec<DataIdentity>,
    /// The lowest possible validation loss, if known.
    pub(crate) floor: Option<Floor>,
    pub(crate) source: TrainSource,
    pub(crate) validation: Validation,
    /// The training tokens; of records, the number of records.
    pub(crate) size: u64,
    /// Notes on the batches.
    pub(crate) notes: Vec<String>,
}

/// The circumstances of a run that its inputs depend on, other than its configuration.
pub(crate) trait DataContext {
    /// True if the run continues from a checkpoint.
    fn is_resumed(&self) -> bool;

    /// The form of the heads of the encoder that the weights come from.
    fn heads(&self) -> Option<&HeadStyle>;

    /// The chat template of records: the checkpoint's, or the one of the weights.
    fn chat_template(&self) -> Option<ChatTemplateSpec>;

    /// The tokenizer of records: the checkpoint's, the one of the weights, or that of the configuration.
    ///
    /// # Errors
    /// There is none, or it is damaged.
    fn tokenizer(&self, data: &DataConfig) -> Result<Tokenizer, TrainError>;

    /// Checks that a resumed run has the data of its checkpoint, and a fork its tokenizer.
    ///
    /// # Errors
    /// It has not.
    fn check_resumed(
        &self,
        config: &DataConfig,
        tokenizer: &Tokenizer,
        identities: &[DataIdentity],
    ) -> Result<(), TrainError>;

    /// Opens the datasets.
    ///
    /// # Errors
    /// They cannot be opened, or differ from those of the checkpoint.
    fn datasets(&self, config: &DataConfig) -> Result<TrainingData, TrainError> {
        let data = TrainingData::open(config)?;
        self.check_resumed(config, data.first().tokenizer(), &data.identities())?;
        Ok(data)
    }
}

impl RunInputs {
    /// Opens the data and resolves the model.
    ///
    /// # Errors
    /// The data cannot be opened, differs from the data that the run was started with, or does not fit the model; or the
    /// objective does not support a setting, or is another model's.
    pub(crate) fn open(
        config: &mut RunConfig,
        context: &dyn DataContext,
    ) -> Result<Self, TrainError> {
        config.train.objective.check_model(&config.model)?;
        let objective = config.train.objective.objective();
        objective.open(config, context)
    }

    /// The inputs of a task on windows of `window` tokens, which become sequences of `seq_len` positions.
    pub(super) fn of_windows(
        data: &TrainingData,
        train: &TrainConfig,
        model: TransformerConfig,
        window: usize,
        seq_len: usize,
        task: Arc<dyn WindowTask>,
    ) -> Result<Self, TrainError> {
        let (batches, notes) = data.batches(train.seed, window, train.documents)?;
        Ok(Self {
            model,
            seq_len,
            tokenizer: data.first().tokenizer().clone(),
            chat_template: data.chat_template().cloned(),
            identities: data.identities(),
            floor: None,
            validation: Validation::of_task(data, &*task, window)?,
            source: TrainSource::Windows { batches, task },
            size: data.train_tokens(),
            notes,
        })
    }

    /// The training settings with the longest sequences of the data in place of their limits.
    pub(crate) fn sized(&self, train: &TrainConfig) -> TrainConfig {
        let mut train = train.clone();
        if let Some((pairs, held_out)) = self.preferences() {
            train.seq_len = pairs.longest().max(held_out.longest());
        }
        if let (TrainSource::Prompts(prompts), Validation::Rewards(validation)) =
            (&self.source, &self.validation)
        {
            let longest = prompts.longest().max(validation.prompts.longest());
            train.seq_len = longest + validation.task.config.max_new_tokens;
        }
        let TrainSource::Records(records) = &self.source else {
            return train;
        };
        let validation = match &self.validation {
            Validation::Labelled { records, .. } | Validation::Pairs(records) => Some(records),
            Validation::Windows { .. } | Validation::Preferences(_) | Validation::Rewards(_) => {
                None
            }
        };
        let splits = std::iter::once(records).chain(validation);
        let longest = splits.map(RecordSet::longest);
        let (input, target) = longest.fold((1, 1), |(input, target), of| {
            (input.max(of.0), target.max(of.1))
        });
        train.seq_len = input;
        if let ObjectiveConfig::Seq2seq(config) = &mut train.objective {
            config.target_tokens = target;
        }
        train
    }

    /// The pairs of both splits, if the objective learns from preferences.
    pub(crate) fn preferences(&self) -> Option<(&PairSet, &PairSet)> {
        match (&self.source, &self.validation) {
            (TrainSource::Pairs(train), Validation::Preferences(validation)) => {
                Some((train, validation))
            }
            _ => None,
        }
    }

    /// The prompts to train on and the task, if the objective learns from rewards.
    pub(crate) fn rewards(&self) -> Option<(&PromptSet, &Arc<RewardTask>)> {
        match (&self.source, &self.validation) {
            (TrainSource::Prompts(prompts), Validation::Rewards(validation)) => {
                Some((prompts, &validation.task))
            }
            _ => None,
        }
    }

    /// Gives the pairs their log-probabilities under the reference model.
    pub(crate) fn apply(&mut self, references: &References) {
        if let (TrainSource::Pairs(train), Validation::Preferences(validation)) =
            (&mut self.source, &mut self.validation)
        {
            references.apply(train, validation);
        }
    }
}
