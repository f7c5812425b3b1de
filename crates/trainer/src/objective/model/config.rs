//! The checked configuration of a model of any kind.

use burn::tensor::Device;
use emberlm_kernels::{Backend, TrainingBackend};
use emberlm_model::{
    Decoder, DecoderConfig, EncoderConfig, EncoderDecoderConfig, LoraConfig, count,
};

use super::TrainingModel;
use crate::error::TrainError;

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

impl CheckedModel {
    /// The configuration of a decoder; `None` for another model.
    pub(crate) fn decoder(&self) -> Option<&DecoderConfig> {
        match self {
            Self::Decoder(config) => Some(config.as_ref()),
            Self::Encoder(_) | Self::EncoderDecoder(_) => None,
        }
    }

    /// The table of the configuration file.
    pub(crate) fn table(&self) -> &'static str {
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
}
