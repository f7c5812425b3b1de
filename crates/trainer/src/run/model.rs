//! The model of a run: its checked configuration, and the weights that it begins with.

use burn::tensor::Device;
use burn::tensor::backend::Backend as BurnBackend;
use emberlm_checkpoint::checkpoint::TRAINING;
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::hugging_face::encoder::HuggingFaceEncoder;
use emberlm_model::hugging_face::encoder_decoder::HuggingFaceEncoderDecoder;
use emberlm_model::{
    AdapterError, Decoder, DecoderConfig, EncoderConfig, EncoderDecoderConfig, LoraConfig,
    WeightsError, count, weights,
};

use crate::checkpoint::Checkpoint;
use crate::error::TrainError;
use crate::training_model::TrainingModel;

/// A checked configuration of a model.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckedModel {
    /// A decoder's.
    Decoder(Box<DecoderConfig>),
    /// An encoder's.
    Encoder(EncoderConfig),
    /// An encoder–decoder's.
    EncoderDecoder(EncoderDecoderConfig),
}

/// A reference to the checked configuration of a model of any kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AnyConfig<'a> {
    /// A decoder's.
    Decoder(&'a DecoderConfig),
    /// An encoder's.
    Encoder(&'a EncoderConfig),
    /// An encoder–decoder's.
    EncoderDecoder(&'a EncoderDecoderConfig),
}

impl<'a> From<&'a DecoderConfig> for AnyConfig<'a> {
    fn from(config: &'a DecoderConfig) -> Self {
        Self::Decoder(config)
    }
}

impl<'a> From<&'a EncoderConfig> for AnyConfig<'a> {
    fn from(config: &'a EncoderConfig) -> Self {
        Self::Encoder(config)
    }
}

impl<'a> From<&'a EncoderDecoderConfig> for AnyConfig<'a> {
    fn from(config: &'a EncoderDecoderConfig) -> Self {
        Self::EncoderDecoder(config)
    }
}

impl<'a> From<&'a CheckedModel> for AnyConfig<'a> {
    fn from(model: &'a CheckedModel) -> Self {
        match model {
            CheckedModel::Decoder(config) => Self::Decoder(config),
            CheckedModel::Encoder(config) => Self::Encoder(config),
            CheckedModel::EncoderDecoder(config) => Self::EncoderDecoder(config),
        }
    }
}

impl AnyConfig<'_> {
    /// The number of parameters.
    pub fn parameters(self) -> u64 {
        match self {
            Self::Decoder(config) => count::parameters(config).total as u64,
            Self::Encoder(config) => config.parameters() as u64,
            Self::EncoderDecoder(config) => config.parameters() as u64,
        }
    }

    /// The number of token ids.
    pub fn vocab_size(self) -> usize {
        match self {
            Self::Decoder(config) => config.vocab_size(),
            Self::Encoder(config) => config.vocab_size(),
            Self::EncoderDecoder(config) => config.vocab_size(),
        }
    }

    /// Floating-point operations of an input token, forward and backward. For models other than decoders an estimate: six
    /// for each parameter that is not in the token table.
    pub fn flops_per_token(self) -> usize {
        let estimate = |parameters: u128, vocab_size: usize, d_model: usize| {
            let table = vocab_size as u128 * d_model as u128;
            6 * parameters.saturating_sub(table) as usize
        };
        match self {
            Self::Decoder(config) => count::flops_per_token(config).training,
            Self::Encoder(config) => {
                estimate(config.parameters(), config.vocab_size(), config.d_model())
            }
            Self::EncoderDecoder(config) => estimate(
                config.parameters(),
                config.vocab_size(),
                config.settings().d_model,
            ),
        }
    }

    /// Builds the model with its initial weights.
    pub(crate) fn init<B: Backend>(self, seed: u64, device: &Device<B>) -> TrainingModel<B> {
        match self {
            Self::Decoder(config) => config.init::<B>(seed, device).into(),
            Self::Encoder(config) => config.init::<B>(seed, device).into(),
            Self::EncoderDecoder(config) => config.init::<B>(seed, device).into(),
        }
    }
}

/// The model with a new adapter over weights in the adapter's format; without an adapter it is unchanged.
///
/// # Errors
/// The adapter's settings do not fit the model.
pub(crate) fn adapted<B: TrainingBackend>(
    decoder: Decoder<B>,
    adapter: Option<&LoraConfig>,
    seed: u64,
) -> Result<Decoder<B>, TrainError> {
    let Some(adapter) = adapter else {
        return Ok(decoder);
    };
    let stored = decoder.weight_format();
    let format = adapter.base_format(stored).unwrap_or(stored);
    Ok(decoder.with_weights(format)?.with_adapter(adapter, seed)?)
}

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
    /// The configuration of a decoder; `None` for another model.
    pub(crate) fn decoder(&self) -> Option<&DecoderConfig> {
        match self {
            Self::Decoder(config) => Some(config.as_ref()),
            Self::Encoder(_) | Self::EncoderDecoder(_) => None,
        }
    }

    fn table(&self) -> &'static str {
        match self {
            Self::Decoder(_) => "model",
            Self::Encoder(_) => "encoder",
            Self::EncoderDecoder(_) => "encoder_decoder",
        }
    }

    /// A reference to the configuration.
    pub fn config(&self) -> AnyConfig<'_> {
        self.into()
    }

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
