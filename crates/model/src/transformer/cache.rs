//! The cache of a decoder, in the format that it is set to.

use burn::tensor::Device;
use emberlm_kernels::Backend;

use super::checked::TransformerConfig;
use super::model::Transformer;
use crate::error::CacheFormatError;
use crate::nn::kv_cache::{CacheFormat, KvCache};

impl<B: Backend> KvCache<B> {
    /// Creates an empty cache in f32 for a model of this configuration, with room for `capacity` tokens in each of
    /// `batch` sequences. [`crate::Transformer::cache`] creates one in the decoder's cache format.
    ///
    /// Keys and values are allocated immediately: for every token, or, in a block with a window, for the window, the
    /// global tokens, [`ROLLBACK_TOKENS`](crate::kv_cache::ROLLBACK_TOKENS) and some hundred more for alignment. Linear attention's sums are small and
    /// allocated on first use.
    pub fn new(
        config: &TransformerConfig,
        batch: usize,
        capacity: usize,
        device: &Device<B>,
    ) -> Self {
        config.stack().cache(batch, capacity, device)
    }
}

impl CacheFormat {
    /// Checks that a model's keys and values can be stored in this format.
    ///
    /// # Errors
    /// The head dimension is not a multiple of the format's block length.
    pub fn check(self, config: &TransformerConfig) -> Result<(), CacheFormatError> {
        self.check_stack(&config.stack())
    }
}

impl<B: Backend> Transformer<B> {
    /// Sets the format of the caches that [`Transformer::cache`] builds. Passes without a cache round keys and values in the
    /// same way, by means of a temporary cache, so the losses and logits of texts are those of generation.
    ///
    /// # Errors
    /// Those of [`CacheFormat::check`] and [`CacheFormat::check_backend`].
    pub fn with_cache_format(self, format: CacheFormat) -> Result<Self, CacheFormatError> {
        format.check(self.config())?;
        format.check_backend::<B>()?;
        Ok(self.set_cache_format(format))
    }

    /// Builds an empty cache in the decoder's cache format, with room for `capacity` tokens in each of `batch` sequences;
    /// see [`KvCache::new`].
    pub fn cache(&self, batch: usize, capacity: usize) -> KvCache<B> {
        let (stack, device) = (self.config().stack(), self.device());
        stack.cache_in(self.cache_format(), batch, capacity, &device)
    }
}
