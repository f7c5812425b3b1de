//! The model that an engine runs.

use std::sync::Arc;

use burn::tensor::{Int, Tensor, TensorData};
use emberlm_kernels::Backend;
use emberlm_model::{
    Decoder, EncodedSource, EncoderDecoder, KvCache, RaggedOutput, SequenceChunk, TransformerConfig,
};

/// The model that an engine runs. Cheap to clone.
#[derive(Clone, Debug)]
pub enum EngineModel<B: Backend> {
    /// Continues prompts, and embeds texts.
    Decoder(Arc<Decoder<B>>),
    /// Generates the targets of sources: a request's prompt is a source.
    EncoderDecoder(Arc<EncoderDecoder<B>>),
}

impl<B: Backend> From<Arc<Decoder<B>>> for EngineModel<B> {
    fn from(decoder: Arc<Decoder<B>>) -> Self {
        Self::Decoder(decoder)
    }
}

impl<B: Backend> From<Arc<EncoderDecoder<B>>> for EngineModel<B> {
    fn from(model: Arc<EncoderDecoder<B>>) -> Self {
        Self::EncoderDecoder(model)
    }
}

/// The sizes of a model that a caller of an engine needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelSizes {
    /// Number of token ids.
    pub vocab_size: usize,
    /// Width of the hidden states.
    pub d_model: usize,
    /// Number of blocks, those of encoder and decoder together.
    pub n_layers: usize,
    /// Attention heads per block.
    pub heads: usize,
}

impl From<&TransformerConfig> for ModelSizes {
    fn from(config: &TransformerConfig) -> Self {
        Self {
            vocab_size: config.vocab_size(),
            d_model: config.d_model(),
            n_layers: config.encoder_layers() + config.n_layers(),
            heads: config.heads(),
        }
    }
}

impl<B: Backend> EngineModel<B> {
    /// The decoder; `None` for an encoder–decoder.
    pub fn decoder(&self) -> Option<&Arc<Decoder<B>>> {
        match self {
            Self::Decoder(decoder) => Some(decoder),
            Self::EncoderDecoder(_) => None,
        }
    }

    /// The model's configuration.
    pub fn config(&self) -> &TransformerConfig {
        match self {
            Self::Decoder(decoder) => decoder.config(),
            Self::EncoderDecoder(model) => model.config(),
        }
    }

    /// The model's sizes.
    pub fn sizes(&self) -> ModelSizes {
        self.config().into()
    }

    /// The longest context in tokens; `usize::MAX` for relative positions, which set no limit.
    pub(super) fn longest_context(&self) -> usize {
        self.config().longest().unwrap_or(usize::MAX)
    }

    /// The token that begins every target; `None` for a decoder, whose sequences begin with their prompts.
    pub(super) fn start_token(&self) -> Option<u32> {
        self.config().start_token()
    }

    /// An empty cache of one sequence of up to `capacity` tokens.
    pub(super) fn cache(&self, capacity: usize) -> KvCache<B> {
        match self {
            Self::Decoder(decoder) => decoder.cache(1, capacity),
            Self::EncoderDecoder(model) => model.cache(1, capacity),
        }
    }

    /// Number of adapters that requests may select.
    pub(super) fn adapters(&self) -> usize {
        match self {
            Self::Decoder(decoder) => decoder.bank_len(),
            Self::EncoderDecoder(_) => 0,
        }
    }

    /// Returns true if both models are of one kind.
    pub(super) fn is_kind_of(&self, other: &Self) -> bool {
        self.config().kind() == other.config().kind()
    }

    /// Returns true if both models have one configuration and cache format, and thereby caches of one shape.
    pub(super) fn has_configuration_of(&self, other: &Self) -> bool {
        let format = |model: &Self| model.decoder().map(|decoder| decoder.cache_format());
        self.config() == other.config() && format(self) == format(other)
    }

    /// Runs the encoder over a source. `None` for a decoder.
    pub(super) fn encode(&self, source: &[u32]) -> Option<EncodedSource<B>> {
        let Self::EncoderDecoder(model) = self else {
            return None;
        };
        let ids: Vec<i64> = source.iter().map(|&id| i64::from(id)).collect();
        let ids = TensorData::new(ids, [1, source.len()]);
        Some(B::run(|| {
            let ids = Tensor::<B, 2, Int>::from_data(ids, &model.device());
            model.encode(ids, None)
        }))
    }

    /// Runs one pass over chunks; `sources` has the source of each chunk of an encoder–decoder.
    pub(super) fn ragged(
        &self,
        chunks: &mut [SequenceChunk<'_, B>],
        sources: &[&EncodedSource<B>],
    ) -> RaggedOutput<B> {
        match self {
            Self::Decoder(decoder) => decoder.ragged(chunks),
            Self::EncoderDecoder(model) => model.ragged(chunks, sources),
        }
    }
}
