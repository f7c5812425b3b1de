//! The transformer: embeddings, a stack of blocks, and a head. An encoder–decoder has a second stack before the first.
//!
//! ```text
//! tokens ─► embedding (+ positions, segments) ─► [norm] ─► block × n_layers ─► [norm] ─► head
//!
//! source ─► embedding ─► block × encoder_layers ─► norm ─► memory
//!                                                             │ cross-attention
//! target ─► embedding ─► block × n_layers ◄───────────────────┘
//!                              └─► norm ─► head
//! ```

use burn::module::Module;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Int, Tensor};

use emberlm_kernels::{Backend, HeadLossOptions, PackedWeight, Precision};

use crate::config::{Init, ModelKind, SizeRatio};
use crate::nn::embeddings::Embeddings;
use crate::nn::init::Initializer;
use crate::nn::kv_cache::{CacheFormat, KvCache};
use crate::nn::linear::Linear;
use crate::nn::lm_head::LmHead;
use crate::nn::stack::Stack;
use crate::nn::token_table::TokenTable;
use crate::nn::tokens::Tokens;
use crate::transformer::checked::TransformerConfig;
use crate::transformer::encoder::EncoderHead;
use crate::transformer::encoder_decoder::t5;
use crate::transformer::originals::Originals;

/// A model with its weights. Weight paths are field paths without `embeddings`, `stack` and `lm_head` (`tokens`,
/// `blocks.0.norm1.gain`, `head`); those of an encoder–decoder's stacks begin with `encoder` and `decoder`.
#[derive(Module, Debug)]
pub struct Transformer<B: BurnBackend> {
    /// Maps tokens to vectors.
    pub embeddings: Embeddings<B>,
    /// The encoder of an encoder–decoder.
    pub encoder: Option<Stack<B>>,
    /// The blocks whose output the head reads: of a decoder or an encoder, or the decoder of an encoder–decoder.
    pub stack: Stack<B>,
    /// Maps vectors to logits. That of an encoder has no parameters: its tokens' table, which `head` uses.
    pub lm_head: LmHead<B>,
    /// The head of an encoder.
    pub head: Option<EncoderHead<B>>,
    #[module(skip)]
    config: TransformerConfig,
    #[module(skip)]
    cache_format: CacheFormat,
    #[module(skip)]
    pub(crate) originals: Originals,
}

impl TransformerConfig {
    /// Builds a model with its initial weights, which depend only on the configuration and `seed`.
    pub fn init<B: Backend>(&self, seed: u64, device: &Device<B>) -> Transformer<B> {
        self.init_within(seed, device, B::largest_buffer(device))
    }

    /// [`TransformerConfig::init`] with the initial weights of a model that is larger than its base by `ratio`: each parameter
    /// has the distribution of its counterpart in the base, and the standard deviations of linear layers are divided by the
    /// root of the ratio of widths (µP, Yang et al. 2022).
    pub fn init_relative<B: Backend>(
        &self,
        seed: u64,
        ratio: SizeRatio,
        device: &Device<B>,
    ) -> Transformer<B> {
        let from = self.initializer(Some(seed), device, B::largest_buffer(device));
        self.drawn(&from.relative_to_base(ratio))
    }

    /// [`TransformerConfig::init`] for a device whose buffers hold at most `largest` bytes: larger token tables are split
    /// into parts. Results are the same except for rounding.
    pub fn init_within<B: Backend>(
        &self,
        seed: u64,
        device: &Device<B>,
        largest: Option<u64>,
    ) -> Transformer<B> {
        self.drawn(&self.initializer(Some(seed), device, largest))
    }

    fn drawn<B: Backend>(&self, from: &Initializer<'_, B>) -> Transformer<B> {
        let model = self.initialized(from);
        match self.initialization() {
            Init::T5 { factor } => t5::scaled(model, self.head_dim(), factor),
            _ => model,
        }
    }

    /// Builds a zero-initialized model to load weights into. Parameters are allocated lazily.
    pub fn blank<B: Backend>(&self, device: &Device<B>) -> Transformer<B> {
        self.blank_within(device, B::largest_buffer(device))
    }

    /// [`TransformerConfig::blank`] with token tables split as in [`TransformerConfig::init_within`].
    pub fn blank_within<B: Backend>(
        &self,
        device: &Device<B>,
        largest: Option<u64>,
    ) -> Transformer<B> {
        self.initialized(&self.initializer(None, device, largest))
    }

    pub(crate) fn initializer<'a, B: Backend>(
        &'a self,
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
        Initializer::new(
            (self.initialization(), self.zero_init()),
            sizes,
            seed,
            device,
            largest,
        )
    }

    fn initialized<B: Backend>(&self, from: &Initializer<'_, B>) -> Transformer<B> {
        let (encoder, stack) = match self.source_stack() {
            Some(encoder) => (
                Some(encoder.init_from(&from.within("encoder."))),
                self.stack().init_from(&from.within("decoder.")),
            ),
            None => (None, self.stack().init_from(from)),
        };
        Transformer {
            embeddings: self.embeddings().init_from(from),
            encoder,
            stack,
            lm_head: self.lm_head().init_from(from),
            head: self
                .encoder_head()
                .map(|head| EncoderHead::init_from(head, self, from)),
            config: self.clone(),
            cache_format: CacheFormat::F32,
            originals: Originals::default(),
        }
    }
}

impl<B: Backend> Transformer<B> {
    /// The model's configuration.
    pub fn config(&self) -> &TransformerConfig {
        &self.config
    }

    /// Returns the model with its matrix products in another precision. The stored weights do not change.
    pub fn with_precision(mut self, precision: Precision) -> Self {
        for stack in self.stacks_mut() {
            stack.set_precision(precision);
        }
        self.lm_head.precision = precision;
        if let Some(head) = &mut self.head {
            head.set_precision(precision);
        }
        self
    }

    /// Returns the decoder with windows of `tokens` tokens in the blocks whose attention has a window, or with those of its
    /// configuration. The configuration does not change.
    pub fn with_window(mut self, tokens: Option<usize>) -> Self {
        let own = self.config.window().map(|window| window.tokens);
        if let Some(tokens) = tokens.or(own) {
            for block in &mut self.stack.blocks {
                block.attention.set_window(tokens);
            }
        }
        self
    }

    /// The format of the caches that [`Transformer::cache`] builds.
    pub fn cache_format(&self) -> CacheFormat {
        self.cache_format
    }

    /// Sets the cache format; [`Transformer::with_cache_format`] checks it.
    pub(crate) fn set_cache_format(mut self, format: CacheFormat) -> Self {
        self.cache_format = format;
        self
    }

    /// The stacks in the order of the forward pass.
    pub fn stacks(&self) -> impl Iterator<Item = &Stack<B>> {
        self.encoder.iter().chain([&self.stack])
    }

    /// The stacks in the order of the forward pass.
    pub(crate) fn stacks_mut(&mut self) -> impl Iterator<Item = &mut Stack<B>> {
        self.encoder.iter_mut().chain([&mut self.stack])
    }

    /// The blocks' linear layers, except the routers of mixtures.
    pub(crate) fn linears_mut(&mut self) -> impl Iterator<Item = &mut Linear<B>> {
        self.stacks_mut().flat_map(Stack::linears_mut)
    }

    /// The blocks' linear layers in the order of [`Transformer::linears_mut`], with their paths.
    pub(crate) fn linears(&self) -> impl Iterator<Item = (String, &Linear<B>)> {
        let prefixes = match &self.encoder {
            Some(_) => ["encoder.", "decoder."].as_slice(),
            None => &[""],
        };
        let stacks = prefixes.iter().zip(self.stacks());
        stacks.flat_map(|(prefix, stack)| {
            let linears = stack.linears();
            linears.map(move |(path, linear)| (format!("{prefix}{path}"), linear))
        })
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

    /// [`Transformer::forward_cached`] with the logits of only the last position: `[batch, vocab_size]`.
    pub fn next_logits(&self, tokens: Tensor<B, 2, Int>, cache: &mut KvCache<B>) -> Tensor<B, 2> {
        let hidden = self.hidden(tokens, Some(cache));
        self.last_logits(hidden)
    }

    /// Mean-pooled final hidden states, before the logit scale: `[batch, seq]` to `[batch, d_model]`. The
    /// requirements on tokens are those of [`Transformer::forward`].
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

    /// [`Transformer::loss_sum`] with the optional additional loss terms of training. They use the logits after the soft
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

    /// [`Transformer::training_loss_sum`] from the final hidden states `[batch, seq, d_model]`.
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

    /// Computes the attention weights after the softmax, `[batch, heads, seq, seq]` per block without a delta net, which has
    /// none; for linear attention, the weights equivalent to its estimate. [`Transformer::forward`] never materializes them; its requirements on
    /// tokens apply.
    pub fn attention_weights(&self, tokens: Tensor<B, 2, Int>) -> Vec<Tensor<B, 4>> {
        let tokens = Tokens::from(tokens);
        let embedded = self.embeddings.forward(&tokens, 0);
        self.stack.run_attention_weights(embedded, tokens.into())
    }

    /// The logits of the last position of hidden states `[batch, seq, d_model]`: `[batch, vocab_size]`.
    pub(super) fn last_logits(&self, hidden: Tensor<B, 3>) -> Tensor<B, 2> {
        let [batch, seq, _] = hidden.dims();
        let last = hidden.narrow(1, seq - 1, 1); // [batch, 1, d_model]
        let logits = self.logits(last); // [batch, 1, vocab_size]
        logits.reshape([batch, self.config.vocab_size()])
    }

    /// The logits that a residual stream `[batch, seq, d_model]` of any block would give if the other blocks added nothing (logit lens,
    /// nostalgebraist 2020): `[batch, seq, vocab_size]`.
    pub fn lens(&self, residual: Tensor<B, 3>) -> Tensor<B, 3> {
        self.logits(self.stack.finish(residual))
    }

    /// The final hidden states of all positions, `[batch, seq, d_model]`, as [`Transformer::training_loss_sum_of`] takes them.
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
        self.stack.run(x, tokens.into(), cache)
    }

    /// The logits of final hidden states, `[batch, seq, d_model]` to `[batch, seq, vocab_size]`.
    pub fn logits(&self, hidden: Tensor<B, 3>) -> Tensor<B, 3> {
        self.lm_head.forward(hidden, &self.embeddings.tokens)
    }

    /// The table that projects hidden states to logits.
    pub(crate) fn table(&self) -> &TokenTable<B> {
        self.lm_head.table(&self.embeddings.tokens)
    }
}
