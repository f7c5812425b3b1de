//! The weights that a run begins with.

use burn::tensor::Device;
use burn::tensor::backend::Backend as BurnBackend;
use emberlm_checkpoint::Model;
use emberlm_checkpoint::checkpoint::TRAINING;
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::encoder::EncoderHeadConfig;
use emberlm_model::hugging_face::{HuggingFaceModel, with_head_of};
use emberlm_model::{AdapterError, LoraConfig, Transformer, TransformerConfig, weights};

use crate::checkpoint::Checkpoint;
use crate::config::TrainConfig;
use crate::error::TrainError;
use crate::objective::adapted;
use crate::objective::model::TrainingModel;

/// The weights that a run begins with.
pub enum RunWeights<B: BurnBackend> {
    /// Those of a model in memory.
    Loaded(Box<Transformer<B>>),
    /// Those of an opened model. A head for another objective is initialized.
    Opened(Box<Model>),
}

impl<B: BurnBackend> From<Transformer<B>> for RunWeights<B> {
    fn from(model: Transformer<B>) -> Self {
        Self::Loaded(Box::new(model))
    }
}

impl<B: BurnBackend> From<Model> for RunWeights<B> {
    fn from(model: Model) -> Self {
        Self::Opened(Box::new(model))
    }
}

impl<B: TrainingBackend> RunWeights<B> {
    /// Loads the weights for a model, and adds a new adapter to it. Parameters that they lack are initialized by `seed`.
    ///
    /// # Errors
    /// The weights cannot be read, or are those of another model.
    pub(crate) fn load(
        self,
        config: &TransformerConfig,
        seed: u64,
        adapter: Option<&LoraConfig>,
        device: &Device<B>,
    ) -> Result<TrainingModel<B>, TrainError> {
        let kind = match &self {
            Self::Loaded(weights) => weights.config().kind(),
            Self::Opened(model) => model.kind(),
        };
        if kind != config.kind() {
            let (weights, model) = (kind, config.kind());
            return Err(TrainError::OtherModel { weights, model });
        }
        let weights = match self {
            Self::Loaded(weights) if weights.has_adapter() => {
                return Err(AdapterError::Adapted.into());
            }
            Self::Opened(model) if model.has_adapter() => {
                return Err(AdapterError::Adapted.into());
            }
            Self::Loaded(weights) => weights.reconfigured(config)?,
            Self::Opened(model) => {
                if adapter.is_some() {
                    check_head(&model, config)?;
                }
                let stored = model.weight_format();
                let format = adapter.and_then(|adapter| adapter.base_format(stored));
                model.decoder_as::<B>(config, seed, format.unwrap_or(stored), device)?
            }
        };
        if adapter.is_none() {
            weights.check_not_packed()?;
        }
        Ok(adapted(weights, adapter, seed)?.into())
    }
}

/// The initial weights of a new run.
pub(crate) fn initial<B: TrainingBackend>(
    model: &TransformerConfig,
    train: &TrainConfig,
    device: &Device<B>,
) -> Transformer<B> {
    let ratio = train
        .parametrization
        .ratio([model.d_model(), model.n_layers()]);
    model.init_relative(train.seed, ratio, device)
}

/// Checks that the model to adapt has the head that predicts masked tokens: an adapter leaves it as it is.
///
/// # Errors
/// It has another one.
fn check_head(model: &Model, config: &TransformerConfig) -> Result<(), TrainError> {
    let head = config.encoder_head();
    let is_masked_lm = matches!(head, Some(EncoderHeadConfig::MaskedLm { .. }));
    match is_masked_lm && model.config().encoder_head() != head {
        true => Err(TrainError::Setting {
            table: "train.adapter",
            field: "rank",
            value: "set".to_owned(),
            rule: "must be absent: the model to start from has no head that predicts masked tokens, and an adapter would not train a new one".to_owned(),
        }),
        false => Ok(()),
    }
}

/// Loads the weights in a checkpoint that training resumes from.
///
/// # Errors
/// The checkpoint is damaged or of another model.
pub(crate) fn resume<B: Backend>(
    config: &TransformerConfig,
    checkpoint: &Checkpoint,
    device: &Device<B>,
) -> Result<TrainingModel<B>, TrainError> {
    if !checkpoint.holds_average() {
        return load(config, checkpoint, device);
    }
    Ok(match &checkpoint.description {
        Some(_) => with_dropout(checkpoint.training_decoder::<B>(device)?, config)?.into(),
        None => {
            let file = checkpoint.path.join(TRAINING);
            weights::load_own(config.blank::<B>(device), &file)?.into()
        }
    })
}

/// Loads the weights in a checkpoint that the model is used with.
///
/// # Errors
/// The checkpoint is damaged or of another model.
pub(crate) fn load<B: Backend>(
    config: &TransformerConfig,
    checkpoint: &Checkpoint,
    device: &Device<B>,
) -> Result<TrainingModel<B>, TrainError> {
    Ok(match &checkpoint.description {
        Some(_) => with_dropout(checkpoint.decoder::<B>(device)?, config)?.into(),
        None => {
            let directory = HuggingFaceModel::open(&checkpoint.path)?;
            directory.model_as::<B>(config, 0, device)?.into()
        }
    })
}

/// The model of a checkpoint with the dropout of `config`, which a fork may change.
///
/// # Errors
/// It has an adapter, and another dropout.
fn with_dropout<B: Backend>(
    decoder: Transformer<B>,
    config: &TransformerConfig,
) -> Result<Transformer<B>, TrainError> {
    let held = decoder.config();
    let is_same = held.dropout() == config.dropout()
        && held.dropout_sites() == config.dropout_sites()
        && held.architecture() == config.architecture();
    if is_same {
        return Ok(decoder);
    }
    if decoder.has_adapter() {
        return Err(TrainError::Setting {
            table: "model",
            field: "dropout",
            value: config.dropout().to_string(),
            rule: format!(
                "must be {}, with the same sites, in a fork of a run with an adapter",
                held.dropout()
            ),
        });
    }
    Ok(with_head_of(&decoder, config, 0)?)
}
