//! The weights that a run begins with.

use burn::tensor::Device;
use burn::tensor::backend::Backend as BurnBackend;
use emberlm_checkpoint::checkpoint::TRAINING;
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::hugging_face::encoder::HuggingFaceEncoder;
use emberlm_model::hugging_face::encoder_decoder::HuggingFaceEncoderDecoder;
use emberlm_model::{AdapterError, Decoder, DecoderConfig, LoraConfig, WeightsError, weights};

use crate::checkpoint::Checkpoint;
use crate::error::TrainError;
use crate::objective::model::TrainingModel;
use crate::objective::{CheckedModel, adapted};

/// The weights that a run begins with.
pub enum RunWeights<B: BurnBackend> {
    /// A decoder's.
    Decoder(Box<Decoder<B>>),
    /// Those in a directory of an encoder. A head for another objective is initialized.
    Encoder(Box<HuggingFaceEncoder>),
    /// Those in a directory of an encoder–decoder.
    EncoderDecoder(Box<HuggingFaceEncoderDecoder>),
}

impl<B: BurnBackend> From<Decoder<B>> for RunWeights<B> {
    fn from(decoder: Decoder<B>) -> Self {
        Self::Decoder(Box::new(decoder))
    }
}

impl<B: TrainingBackend> RunWeights<B> {
    /// Loads the weights for a model, and adds a new adapter to a decoder. Parameters that they lack are initialized by
    /// `seed`.
    ///
    /// # Errors
    /// The weights cannot be read, or are those of another model.
    pub(crate) fn load(
        self,
        model: &CheckedModel,
        seed: u64,
        adapter: Option<&LoraConfig>,
        device: &Device<B>,
    ) -> Result<TrainingModel<B>, TrainError> {
        Ok(match (self, model) {
            (Self::Decoder(weights), CheckedModel::Decoder(config)) => {
                if weights.has_adapter() {
                    return Err(AdapterError::Adapted.into());
                }
                let weights = weights.reconfigured(config)?;
                match adapter {
                    Some(_) => adapted(weights, adapter, seed)?.into(),
                    None => {
                        weights.check_not_packed()?;
                        weights.into()
                    }
                }
            }
            (Self::Encoder(directory), CheckedModel::Encoder(config)) => {
                directory.encoder_as::<B>(config, seed, device)?.into()
            }
            (Self::EncoderDecoder(directory), CheckedModel::EncoderDecoder(config)) => {
                directory.model_as::<B>(config, device)?.into()
            }
            (_, model) => {
                let table = model.table();
                return Err(TrainError::OtherModel { table });
            }
        })
    }
}

impl CheckedModel {
    /// Loads the weights in a checkpoint that training resumes from.
    ///
    /// # Errors
    /// The checkpoint is damaged or of another model.
    pub(crate) fn resume<B: Backend>(
        &self,
        checkpoint: &Checkpoint,
        device: &Device<B>,
    ) -> Result<TrainingModel<B>, TrainError> {
        if !checkpoint.holds_average() {
            return self.load(checkpoint, device);
        }
        let file = checkpoint.path.join(TRAINING);
        Ok(match self {
            Self::Decoder(config) => {
                with_dropout(checkpoint.training_decoder::<B>(device)?, config)?.into()
            }
            Self::Encoder(config) => own(config.blank::<B>(device), &file)?.into(),
            Self::EncoderDecoder(config) => own(config.blank::<B>(device), &file)?.into(),
        })
    }

    /// Loads the weights in a checkpoint that the model is used with.
    ///
    /// # Errors
    /// The checkpoint is damaged or of another model.
    pub(crate) fn load<B: Backend>(
        &self,
        checkpoint: &Checkpoint,
        device: &Device<B>,
    ) -> Result<TrainingModel<B>, TrainError> {
        let path = &checkpoint.path;
        Ok(match self {
            Self::Decoder(config) => with_dropout(checkpoint.decoder::<B>(device)?, config)?.into(),
            Self::Encoder(config) => {
                let directory = HuggingFaceEncoder::open(path)?;
                directory.encoder_as::<B>(config, 0, device)?.into()
            }
            Self::EncoderDecoder(config) => {
                let directory = HuggingFaceEncoderDecoder::open(path)?;
                directory.model_as::<B>(config, device)?.into()
            }
        })
    }
}

/// The decoder of a checkpoint with the dropout of `config`, which a fork may change.
///
/// # Errors
/// It has an adapter, and another dropout.
fn with_dropout<B: Backend>(
    decoder: Decoder<B>,
    config: &DecoderConfig,
) -> Result<Decoder<B>, TrainError> {
    let held = decoder.config();
    if held.dropout() == config.dropout() && held.dropout_sites() == config.dropout_sites() {
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
    Ok(decoder.reconfigured(config)?)
}

/// Loads a module from a file whose tensors have the names of its parameters.
fn own<B: Backend, M: burn::module::Module<B>>(
    module: M,
    file: &std::path::Path,
) -> Result<M, WeightsError> {
    weights::load_own(module, file)
}
