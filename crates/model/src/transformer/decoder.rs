//! The decoder-only transformer.
//!
//! ```text
//! tokens ─► embedding (+ positions) ─► [norm] ─► block × n_layers ─► norm ─► head ─► logits
//! ```

use burn::module::Module;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Int, Tensor};

use emberlm_kernels::{AttentionMask, Backend, HeadLossOptions, PackedWeight, Precision};

use crate::config::ModelKind;
use crate::nn::context::StackContext;
use crate::nn::embeddings::Embeddings;
use crate::nn::init::Initializer;
use crate::nn::kv_cache::{CacheFormat, KvCache};
use crate::nn::linear::Linear;
use crate::nn::lm_head::LmHead;
use crate::nn::stack::Stack;
use crate::nn::token_table::TokenTable;
use crate::nn::tokens::Tokens;
use crate::transformer::checked::TransformerConfig;
use crate::transformer::originals::Originals;

/// A decoder with its weights: embeddings, a causal stack and a language-model head. Weight paths are field paths
/// within these three (`tokens`, `blocks.0.norm1.gain`, `head`).
#[derive(Module, Debug)]
pub struct Decoder<B: BurnBackend> {
    /// Maps tokens to vectors.
    pub embeddings: Embeddings<B>,
    /// The blocks.
    pub stack: Stack<B>,
    /// Maps vectors to logits.
    pub lm_head: LmHead<B>,
    #[module(skip)]
    config: TransformerConfig,
    #[module(skip)]
    cache_format: CacheFormat,
    #[module(skip)]
    pub(crate) originals: Originals,
}

impl TransformerConfig {
    /// Builds a model with its initial weights, which depend only on the configuration and `seed`.
    pub fn init<B: Backend>(&self, seed: u64, device: &Device<B>) -> Decoder<B> {
        self.init_within(seed, device, B::largest_buffer(device))
    }

    /// [`TransformerConfig::init`] for a device whose buffers hold at most `largest` bytes: larger token tables are split
    /// into parts. Results are the same except for rounding.
    pub fn init_within<B: Backend>(
        &self,
        seed: u64,
        device: &Device<B>,
        largest: Option<u64>,
    ) -> Decoder<B> {
        self.initialized(&self.initializer(Some(seed), device, largest))
    }

    /// Builds a zero-initialized model to load weights into. Parameters are allocated lazily.
    pub fn blank<B: Backend>(&self, device: &Device<B>) -> Decoder<B> {
        self.blank_within(device, B::largest_buffer(device))
    }

    /// [`TransformerConfig::blank`] with token tables split as in [`TransformerConfig::init_within`].
    pub fn blank_within<B: Backend>(&self, device: &Device<B>, largest: Option<u64>) -> Decoder<B> {
        self.initialized(&self.initializer(None, device, largest))
    }

    pub(crate) fn initializer<'a, B: Backend>(
        &self,
        seed: Option<u64>,
        device: &'a Device<B>,
        largest: Option<u64>,
    ) -> Initializer<'a, B> {
        // The scale of an encoder–decoder's residual layers follows from its encoder.
        let layers = match self.kind() {
            ModelKind::EncoderDecoder => self.encoder_layers(),
            ModelKind::Decoder | ModelKind::Encoder => self.n_layers(),
        };
        let sizes = [layers, self.d_model()];
        Initializer::new(self.initialization(), sizes, seed, device, largest)
    }

    fn initialized<B: Backend>(&self, from: &Initializer<'_, B>) -> Decoder<B> {
        Decoder {
            embeddings: self.embeddings().init_from(from),
            stack: self.stack().init_from(from),
            lm_head: self.lm_head().init_from(from),
            config: self.clone(),
            cache_format: CacheFormat::F32,
            originals: Originals::default(),
        }
    }
}

impl<B: Backend> Decoder<B> {
    /// The model's configuration.
    pub fn config(&self) -> &TransformerConfig {
        &self.config
    }

    /// Returns the model with its matrix products in another precision. The stored weights do not change.
    pub fn with_precision(mut self, precision: Precision) -> Self {
        self.lm_head.precision = precision;
        self.stack.set_precision(precision);
        self
    }

    /// The format of the caches that [`Decoder::cache`] builds.
    pub fn cache_format(&self) -> CacheFormat {
        self.cache_format
    }

    /// Sets the cache format; [`Decoder::with_cache_format`] checks it.
    pub(crate) fn set_cache_format(mut self, format: CacheFormat) -> Self {
        self.cache_format = format;
        self
    }

    /// The blocks' linear layers, except the routers of mixtures.
    pub(crate) fn linears_mut(&mut self) -> impl Iterator<Item = &mut Linear<B>> {
        self.stack.linears_mut()
    }

    /// The blocks' linear layers in the order of [`Decoder::linears_mut`], with their paths.
    pub(crate) fn linears(&self) -> impl Iterator<Item = (String, &Linear<B>)> {
        self.stack.linears()
    }

    /// The packed weights with their parameter paths. A weight consists of parts, each with consecutive outputs.
    pub(crate) fn packed_weights(&self) -> Vec<(String, Vec<PackedWeight<B>>)> {
        let linears = self.linears().filter_map(|(path, linear)| {
            let weight = linear.packed()?;
            Some((format!("{path}.weight"), weight.parts().to_vec()))
        });
        let head = match self.table() {
            TokenTable::Packed(rows) => Some(("head".to_owned(), rows.parts().to_vec())),
            TokenTable::Whole(_) | TokenTable::Parts(_) => None,
        };
        linears.chain(head).collect()
    }

    /// The device that holds the weights.
    pub fn device(&self) -> Device<B> {
        self.embeddings.tokens.device()
    }

    /// Computes the logits of every position: `[batch, seq]` to `[batch, seq, vocab_size]`.
    ///
    /// Token ids must be below `vocab_size` and sequences at most `seq_len` long; [`TransformerConfig::check_tokens`]
    /// checks input.
    pub fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let hidden = self.hidden(tokens, None);
        self.logits(hidden)
    }

    /// Computes the logits of every position of `tokens`, which continue the cached tokens, and adds the tokens to the
    /// cache. The total length must not exceed the cache's capacity or the model's `seq_len`.
    pub fn forward_cached(
        &self,
        tokens: Tensor<B, 2, Int>,
        cache: &mut KvCache<B>,
    ) -> Tensor<B, 3> {
        let hidden = self.hidden(tokens, Some(cache));
        self.logits(hidden)
    }

    /// [`Decoder::forward_cached`] with the logits of only the last position: `[batch, vocab_size]`.
    pub fn next_logits(&self, tokens: Tensor<B, 2, Int>, cache: &mut KvCache<B>) -> Tensor<B, 2> {
        let hidden = self.hidden(tokens, Some(cache));
        let [batch, seq, _] = hidden.dims();
        let last = hidden.narrow(1, seq - 1, 1); // [batch, 1, d_model]
        let logits = self.logits(last); // [batch, 1, vocab_size]
        logits.reshape([batch, self.config.vocab_size()])
    }

    /// Mean-pooled final hidden states, before the logit scale: `[batch, seq]` to `[batch, d_model]`. The
    /// requirements on tokens are those of [`Decoder::forward`].
    pub fn mean_hidden(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        self.hidden(tokens, None).mean_dim(1).squeeze_dim(1)
    }

    /// The cross-entropy in nats, summed over all tokens whose target is not ignored, `[1]`. Targets below 0, such as
    /// [`crate::IGNORED_ELEMENT`], are ignored. `tokens` and `targets` are `[batch, seq]`.
    pub fn loss_sum(
        &self,
        tokens: impl Into<Tokens<B>>,
        targets: Tensor<B, 2, Int>,
    ) -> Tensor<B, 1> {
        match self.table().packed_format() {
            // The fused loss needs the head in f32; this one computes the logits block by block.
            Some(_) => self.token_losses(tokens, targets).sum(),
            None => self.training_loss_sum(tokens, targets, HeadLossOptions::default()),
        }
    }

    /// [`Decoder::loss_sum`] with the optional additional loss terms of training. They use the logits after the soft
    /// cap, if any.
    pub fn training_loss_sum(
        &self,
        tokens: impl Into<Tokens<B>>,
        targets: Tensor<B, 2, Int>,
        options: HeadLossOptions,
    ) -> Tensor<B, 1> {
        let hidden = self.hidden(tokens, None);
        self.training_loss_sum_of(hidden, targets, options)
    }

    /// [`Decoder::training_loss_sum`] from the final hidden states `[batch, seq, d_model]`.
    pub fn training_loss_sum_of(
        &self,
        hidden: Tensor<B, 3>,
        targets: Tensor<B, 2, Int>,
        options: HeadLossOptions,
    ) -> Tensor<B, 1> {
        let tokens = &self.embeddings.tokens;
        self.lm_head.loss_sum(hidden, tokens, targets, options)
    }

    /// The cross-entropy in nats of each target `[batch, seq]`, from the final hidden states `[batch, seq, d_model]`:
    /// `[batch, seq]`, 0 where the target is ignored.
    pub fn losses_of(&self, hidden: Tensor<B, 3>, targets: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        let tokens = &self.embeddings.tokens;
        self.lm_head.losses(hidden, tokens, targets)
    }

    /// Computes the attention weights after the softmax, `[batch, heads, seq, seq]` per block; for linear attention,
    /// the weights equivalent to its estimate. [`Decoder::forward`] never materializes them; its requirements on
    /// tokens apply.
    pub fn attention_weights(&self, tokens: Tensor<B, 2, Int>) -> Vec<Tensor<B, 4>> {
        let embedded = self.embeddings.forward(&tokens.into(), 0);
        self.stack
            .run_attention_weights(embedded, StackContext::default())
    }

    /// The final hidden states of all positions, `[batch, seq, d_model]`, as [`Decoder::training_loss_sum_of`] takes them.
    pub fn hidden_states(&self, tokens: impl Into<Tokens<B>>) -> Tensor<B, 3> {
        self.hidden(tokens, None)
    }

    /// The final hidden states `[batch, seq, d_model]`.
    pub(crate) fn hidden(
        &self,
        tokens: impl Into<Tokens<B>>,
        cache: Option<&mut KvCache<B>>,
    ) -> Tensor<B, 3> {
        let tokens = tokens.into();
        // Only a cache rounds keys and values.
        let mut rounding = match self.cache_format {
            CacheFormat::F32 => None,
            CacheFormat::F16 | CacheFormat::Q8 => {
                let [batch, seq] = tokens.dims();
                cache.is_none().then(|| self.cache(batch, seq))
            }
        };
        let cache = cache.or(rounding.as_mut());
        let offset = cache.as_ref().map_or(0, |cache| cache.len());
        let x = self.embeddings.forward(&tokens, offset);
        let mask = AttentionMask::of_documents(tokens.documents);
        self.stack.run(x, mask.into(), cache)
    }

    /// Maps `[batch, seq, d_model]` to `[batch, seq, vocab_size]`.
    pub(crate) fn logits(&self, hidden: Tensor<B, 3>) -> Tensor<B, 3> {
        self.lm_head.forward(hidden, &self.embeddings.tokens)
    }

    /// The table that projects hidden states to logits.
    pub(crate) fn table(&self) -> &TokenTable<B> {
        self.lm_head.table(&self.embeddings.tokens)
    }
}
