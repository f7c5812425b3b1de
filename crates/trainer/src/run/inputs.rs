//! The inputs of a run: its data, its model's configuration, and the loaders of its batches.

use std::sync::Arc;

use burn::tensor::Device;
use emberlm_data::{ChatTemplateSpec, Dataset, Floor, Tokenizer};
use emberlm_kernels::TrainingBackend;
use emberlm_model::hugging_face::encoder::HuggingFaceEncoder;
use emberlm_model::{ConfigError, DecoderConfig};

use super::{CheckedModel, RunStart};
use crate::checkpoint::State;
use crate::config::{DataConfig, ObjectiveConfig, RunConfig, RunModel, TrainConfig};
use crate::data::TrainingData;
use crate::data::file_check::FileCheck;
use crate::data::identity::DataIdentity;
use crate::error::TrainError;
use crate::evaluate::validation::Validation;
use crate::objective::loader::TrainLoader;
use crate::objective::{
    PairSet, PreferenceLoss, PromptSet, RecordSet, References, RewardTask, TrainSource, WindowTask,
};
use crate::peers::Rank;
use crate::run::resume;

mod decoder;
mod encoder;
mod encoder_decoder;
mod epoch;

pub(super) use epoch::sequence_tokens;
pub use epoch::{EpochSize, epoch_size};

/// Resolves the decoder of the configuration, with the dataset's vocabulary size if none is set. Other unset sizes stay
/// unset in `config`.
///
/// # Errors
/// The vocabulary is smaller than the dataset's, the model configuration is invalid, or the model is no decoder.
pub fn resolve_model(
    config: &mut RunConfig,
    dataset: &Dataset,
) -> Result<DecoderConfig, TrainError> {
    let model = config.model.decoder_mut()?;
    let tokens = dataset.tokenizer().vocab_size();
    decoder::resolve(model, tokens, "dataset")
}

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
) -> Result<(CheckedModel, TrainConfig), TrainError> {
    let mut config = config.clone();
    if config.model.as_decoder().is_some() && !config.reads_records() {
        let data = TrainingData::open(&config.data)?;
        let model = resolve_model(&mut config, data.first())?;
        return Ok((CheckedModel::Decoder(Box::new(model)), config.train));
    }
    let circumstances = Circumstances {
        start,
        directory: None,
        tokenizer,
        chat_template,
    };
    let inputs = RunInputs::open(&mut config, &circumstances)?;
    let train = inputs.sized(&config.train);
    Ok((inputs.model, train))
}

/// The inputs of a run.
pub(crate) struct RunInputs {
    pub(crate) model: CheckedModel,
    /// Tokens per sequence.
    pub(super) seq_len: usize,
    pub(super) tokenizer: Tokenizer,
    pub(super) chat_template: Option<ChatTemplateSpec>,
    pub(crate) identities: Vec<DataIdentity>,
    /// The lowest possible validation loss, if known.
    pub(super) floor: Option<Floor>,
    pub(super) source: TrainSource,
    pub(super) validation: Validation,
    /// The training tokens; of records, the number of records.
    pub(super) size: u64,
    /// Notes on the batches.
    pub(super) notes: Vec<String>,
}

/// The circumstances of a run that its inputs depend on, other than its configuration.
pub(super) struct Circumstances<'a> {
    pub(super) start: &'a RunStart,
    /// The encoder's directory that the weights come from.
    pub(super) directory: Option<&'a HuggingFaceEncoder>,
    /// The tokenizer of the weights.
    pub(super) tokenizer: Option<Tokenizer>,
    /// The chat template of the weights.
    pub(super) chat_template: Option<ChatTemplateSpec>,
}

impl Circumstances<'_> {
    /// Opens the datasets.
    fn datasets(&self, config: &DataConfig) -> Result<TrainingData, TrainError> {
        let data = TrainingData::open(config)?;
        self.check_resumed(config, data.first().tokenizer(), &data.identities())?;
        Ok(data)
    }

    /// Checks that a resumed run has the data of its checkpoint, and a fork its tokenizer.
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

    /// The chat template of records: the checkpoint's, or the one of the weights.
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

    /// The tokenizer of records: the checkpoint's, the one of the weights, or that of the configuration.
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
    /// Opens the data and resolves the model.
    ///
    /// # Errors
    /// The data cannot be opened, differs from the data that the run was started with, or does not fit the model; or the
    /// objective does not support a setting.
    pub(super) fn open(
        config: &mut RunConfig,
        circumstances: &Circumstances<'_>,
    ) -> Result<Self, TrainError> {
        use ObjectiveConfig::{Classify, Mlm, NextToken, Seq2seq, SpanCorruption};
        if let Some(loss) = PreferenceLoss::of(&config.train.objective) {
            return decoder::preferences(config, loss, circumstances);
        }
        if let ObjectiveConfig::Grpo(objective) = config.train.objective.clone() {
            return decoder::prompts(config, objective, circumstances);
        }
        if config.reads_conversations() {
            return decoder::conversations(config, circumstances);
        }
        let (data, train) = (&config.data, &config.train);
        Ok(match (&mut config.model, &train.objective) {
            (RunModel::Decoder(_), NextToken(_)) => Self::of_decoder(config, circumstances)?,
            (RunModel::Encoder(settings), Mlm(objective)) => {
                encoder::masked(settings, objective, data, train, circumstances)?
            }
            (RunModel::Encoder(settings), Classify(objective)) => {
                encoder::labelled(settings, objective, data, train, circumstances)?
            }
            (RunModel::EncoderDecoder(settings), SpanCorruption(objective)) => {
                encoder_decoder::corrupted(settings, objective, data, train, circumstances)?
            }
            (RunModel::EncoderDecoder(settings), Seq2seq(objective)) => {
                encoder_decoder::pairs(settings, objective, data, train, circumstances)?
            }
            (model, objective) => return Err(objective.not_of(model)),
        })
    }

    fn of_decoder(
        config: &mut RunConfig,
        circumstances: &Circumstances<'_>,
    ) -> Result<Self, TrainError> {
        let data = circumstances.datasets(&config.data)?;
        let model = resolve_model(config, data.first())?;
        let train = &config.train;
        let seq_len = train.sequence_tokens(model.seq_len())?;
        if train.documents.isolates_documents() {
            model.check_documents()?;
        }
        let validation = Validation::of_decoder(&data, &model, seq_len)?;
        let model = CheckedModel::Decoder(Box::new(model));
        let task = WindowTask::NextToken;
        let inputs = Self::of_windows(&data, train, model, seq_len, seq_len, task)?;
        Ok(Self {
            floor: data.floor(),
            validation,
            ..inputs
        })
    }

    /// The inputs of a task on windows of `window` tokens, which become sequences of `seq_len` positions.
    fn of_windows(
        data: &TrainingData,
        train: &TrainConfig,
        model: CheckedModel,
        window: usize,
        seq_len: usize,
        task: WindowTask,
    ) -> Result<Self, TrainError> {
        let (batches, notes) = data.batches(train.seed, window, train.documents)?;
        Ok(Self {
            model,
            seq_len,
            tokenizer: data.first().tokenizer().clone(),
            chat_template: data.chat_template().cloned(),
            identities: data.identities(),
            floor: None,
            validation: Validation::of_task(data, &task, window)?,
            source: TrainSource::Windows { batches, task },
            size: data.train_tokens(),
            notes,
        })
    }

    /// The training settings with the longest sequences of the data in place of their limits.
    pub(super) fn sized(&self, train: &TrainConfig) -> TrainConfig {
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
    pub(super) fn preferences(&self) -> Option<(&PairSet, &PairSet)> {
        match (&self.source, &self.validation) {
            (TrainSource::Pairs(train), Validation::Preferences(validation)) => {
                Some((train, validation))
            }
            _ => None,
        }
    }

    /// The prompts to train on and the task, if the objective learns from rewards.
    pub(super) fn rewards(&self) -> Option<(&PromptSet, &Arc<RewardTask>)> {
        match (&self.source, &self.validation) {
            (TrainSource::Prompts(prompts), Validation::Rewards(validation)) => {
                Some((prompts, &validation.task))
            }
            _ => None,
        }
    }

    /// Gives the pairs their log-probabilities under the reference model.
    pub(super) fn apply(&mut self, references: &References) {
        if let (TrainSource::Pairs(train), Validation::Preferences(validation)) =
            (&mut self.source, &mut self.validation)
        {
            references.apply(train, validation);
        }
    }

    /// Starts the verification of files without block hashes.
    pub(super) fn check_files(&self) -> FileCheck {
        FileCheck::start(self.source.splits().chain(self.validation.splits()))
    }

    /// The loader of a rank, for a run at `state`.
    pub(super) fn loader<B: TrainingBackend>(
        &self,
        train: &TrainConfig,
        state: &State,
        rank: Rank,
        device: &Device<B>,
    ) -> TrainLoader<Device<B>> {
        let step_sequences = train.step_sequences();
        TrainLoader {
            source: self.source.clone(),
            first_window: state.sequences_at(state.step, step_sequences),
            micro_batch: train.micro_batch,
            rank,
            workers: train.loader_workers,
            windows: state.sequences_at(train.steps, step_sequences),
            device: device.clone(),
        }
    }
}

/// The number of token ids of a model: `set`, or `needed` if that is 0.
///
/// # Errors
/// `set` is less than the tokenizer's ids.
fn vocabulary(set: usize, needed: usize, tokenizer: &Tokenizer) -> Result<usize, TrainError> {
    let tokens = tokenizer.vocab_size();
    match set {
        0 => Ok(needed),
        set if set < tokens => {
            let rule = format!("must be at least the tokenizer's {tokens}");
            Err(ConfigError::new("vocab_size", set, rule).into())
        }
        set => Ok(set),
    }
}

/// A note on texts that were cut off.
fn truncation_note(
    truncated: usize,
    train: usize,
    validation: usize,
    limit: usize,
) -> Option<String> {
    (truncated > 0).then(|| {
        let count = train + validation;
        format!("{truncated} of {count} texts were truncated to {limit} tokens")
    })
}
