//! The weights that a run begins with.

use burn::tensor::Device;
use burn::tensor::backend::Backend as BurnBackend;
use emberlm_checkpoint::checkpoint::TRAINING;
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::hugging_face::encoder::HuggingFaceEncoder;
use emberlm_model::hugging_face::encoder_decoder::HuggingFaceEncoderDecoder;
use emberlm_model::{
    AdapterError, LoraConfig, ModelKind, Transformer, TransformerConfig, WeightsError, weights,
};

use crate::checkpoint::Checkpoint;
use crate::config::model::table_of;
use crate::error::TrainError;
use crate::objective::adapted;
use crate::objective::model::TrainingModel;

/// The weights that a run begins with.
pub enum RunWeights<B: BurnBackend> {
    /// A decoder's.
    Decoder(Box<Transformer<B>>),
    /// Those in a directory of an encoder. A head for another objective is initialized.
    Encoder(Box<HuggingFaceEncoder>),
    /// Those in a directory of an encoder–decoder.
    EncoderDecoder(Box<HuggingFaceEncoderDecoder>),
}

impl<B: BurnBackend> From<Transformer<B>> for RunWeights<B> {
    fn from(decoder: Transformer<B>) -> Self {
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
        config: &TransformerConfig,
        seed: u64,
        adapter: Option<&LoraConfig>,
        device: &Device<B>,
    ) -> Result<TrainingModel<B>, TrainError> {
        Ok(match (self, config.kind()) {
            (Self::Decoder(weights), ModelKind::Decoder) => {
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
            (Self::Encoder(directory), ModelKind::Encoder) => {
                directory.encoder_as::<B>(config, seed, device)?.into()
            }
            (Self::EncoderDecoder(directory), ModelKind::EncoderDecoder) => {
                directory.model_as::<B>(config, device)?.into()
            }
            (_, kind) => {
                let table = table_of(kind);
                return Err(TrainError::OtherModel { table });
            }
        })
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
    let file = checkpoint.path.join(TRAINING);
    Ok(match config.kind() {
        ModelKind::Decoder => {
            with_dropout(checkpoint.training_decoder::<B>(device)?, config)?.into()
        }
        ModelKind::Encoder | ModelKind::EncoderDecoder => {
            own(config.blank::<B>(device), &file)?.into()
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
    let path = &checkpoint.path;
    Ok(match config.kind() {
        ModelKind::Decoder => with_dropout(checkpoint.decoder::<B>(device)?, config)?.into(),
        ModelKind::Encoder => {
            let directory = HuggingFaceEncoder::open(path)?;
            directory.encoder_as::<B>(config, 0, device)?.into()
        }
        ModelKind::EncoderDecoder => {
            let directory = HuggingFaceEncoderDecoder::open(path)?;
            directory.model_as::<B>(config, device)?.into()
        }
    })
}

/// The decoder of a checkpoint with the dropout of `config`, which a fork may change.
///
/// # Errors
/// It has an adapter, and another dropout.
fn with_dropout<B: Backend>(
    decoder: Transformer<B>,
    config: &TransformerConfig,
) -> Result<Transformer<B>, TrainError> {
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
