//! The model that an engine runs.

use std::sync::Arc;

use emberlm_kernels::Backend;
use emberlm_model::{
    EncodedSource, KvCache, ModelKind, RaggedOutput, SequenceChunk, Transformer, TransformerConfig,
};

use crate::sequence;

/// The model that an engine runs: a decoder, which continues prompts and embeds texts, or an encoder–decoder, which
/// generates the targets of sources. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EngineModel<B: Backend>(Arc<Transformer<B>>);

impl<B: Backend> From<Arc<Transformer<B>>> for EngineModel<B> {
    fn from(model: Arc<Transformer<B>>) -> Self {
        Self(model)
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
    pub fn decoder(&self) -> Option<&Arc<Transformer<B>>> {
        (self.config().kind() == ModelKind::Decoder).then_some(&self.0)
    }

    /// The model's configuration.
    pub fn config(&self) -> &TransformerConfig {
        self.0.config()
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
        self.0.cache(1, capacity)
    }

    /// Number of adapters that requests may select.
    pub(super) fn adapters(&self) -> usize {
        self.0.bank_len()
    }

    /// Returns true if both models are of one kind.
    pub(super) fn is_kind_of(&self, other: &Self) -> bool {
        self.config().kind() == other.config().kind()
    }

    /// Returns true if both models have one configuration and cache format, and thereby caches of one shape.
    pub(super) fn has_configuration_of(&self, other: &Self) -> bool {
        let formats = [self, other].map(|model| model.0.cache_format());
        self.config() == other.config() && formats[0] == formats[1]
    }

    /// Runs an encoder–decoder's encoder over a source.
    pub(super) fn encode(&self, source: &[u32]) -> EncodedSource<B> {
        sequence::encode(&self.0, source)
    }

    /// Runs one pass over chunks.
    pub(super) fn ragged(&self, chunks: &mut [SequenceChunk<'_, B>]) -> RaggedOutput<B> {
        self.0.ragged(chunks)
    }
}
