//! The inputs of a run: its datasets, its model's configuration, and the loaders of its batches.

use std::sync::Arc;

use burn::tensor::Device;
use burn::tensor::backend::AutodiffBackend;
use emberlm_data::{Dataset, Packing, TrainBatches};
use emberlm_kernels::TrainingBackend;
use emberlm_model::{ConfigError, DecoderConfig};

use super::RunStart;
use crate::config::{RunConfig, TrainConfig};
use crate::data::{TrainingData, Validation};
use crate::error::TrainError;
use crate::file_check::FileCheck;
use crate::loader::{EvalLoader, Failure, TrainLoader};
use crate::peers::Rank;
use crate::resume;

/// The loaders for Burn's learner.
pub(super) type Loaders<B> = (
    Arc<TrainLoader<B>>,
    Arc<EvalLoader<<B as AutodiffBackend>::InnerBackend>>,
);

/// Resolves the model of the configuration, with the dataset's vocabulary size if none is set. Other unset sizes stay
/// unset in `config`.
///
/// # Errors
/// The vocabulary is smaller than the dataset's, or the model configuration is invalid.
pub fn resolve_model(
    config: &mut RunConfig,
    dataset: &Dataset,
) -> Result<DecoderConfig, TrainError> {
    let tokens = dataset.tokenizer().vocab_size();
    let vocab_size = config.model.vocab_size.get_or_insert(tokens);
    if *vocab_size < tokens {
        let rule = format!("must be at least the dataset's {tokens}");
        return Err(ConfigError::new("vocab_size", *vocab_size, rule).into());
    }
    Ok(DecoderConfig::try_from(config.model.clone())?)
}

/// The inputs of a run.
pub(crate) struct RunInputs {
    pub(crate) data: TrainingData,
    pub(crate) model: DecoderConfig,
    /// Tokens per sequence.
    pub(super) seq_len: usize,
    batches: TrainBatches,
    pub(super) validation: Validation,
    /// Notes on the batches.
    pub(super) notes: Vec<String>,
}

impl RunInputs {
    /// Opens the datasets and resolves the model.
    ///
    /// # Errors
    /// A dataset cannot be opened, differs from the dataset that the run was started with, or does not fit the model.
    pub(super) fn open(config: &mut RunConfig, start: &RunStart) -> Result<Self, TrainError> {
        let data = TrainingData::open(&config.data)?;
        if let Some(checkpoint) = start.checkpoint() {
            resume::check_data(checkpoint, &data)?;
        }
        let model = resolve_model(config, data.first())?;
        let train = &config.train;
        let seq_len = train.sequence_tokens(model.seq_len())?;
        if train.documents == Packing::Isolated {
            model.check_documents()?;
        }
        let (batches, notes) = data.batches(train.seed, seq_len, train.documents)?;
        let validation = data.validation(seq_len, train.documents)?;
        Ok(Self {
            data,
            model,
            seq_len,
            batches,
            validation,
            notes,
        })
    }

    /// Starts the verification of files without block hashes.
    pub(super) fn check_files(&self) -> FileCheck {
        FileCheck::start(self.batches.splits().chain(self.validation.splits()))
    }

    /// The loaders of a rank, for a run at `step`.
    pub(super) fn loaders<B: TrainingBackend>(
        &self,
        train: &TrainConfig,
        step: usize,
        rank: Rank,
        failure: &Failure,
        device: &Device<B>,
    ) -> Loaders<B> {
        let step_sequences = train.step_sequences(rank.world_size());
        let train_loader = TrainLoader::<B> {
            batches: self.batches.clone(),
            first_window: step as u64 * step_sequences,
            micro_batch: train.micro_batch,
            rank,
            workers: train.loader_workers,
            windows: train.steps as u64 * step_sequences,
            device: device.clone(),
            failure: failure.clone(),
        };
        let eval_loader = EvalLoader::<B::InnerBackend> {
            windows: self.validation.first().clone(),
            batch: train.evaluation.batch,
            max_tokens: train.evaluation.token_limit(),
            device: device.clone(),
            failure: failure.clone(),
        };
        (Arc::new(train_loader), Arc::new(eval_loader))
    }
}
