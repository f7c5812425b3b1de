//! The decoder-only transformer.
//!
//! ```text
//! tokens ─► embedding (+ positions) ─► [norm] ─► block × n_layers ─► norm ─► head ─► logits
//! ```

use burn::module::{Module, Param};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Int, Tensor};

use emberlm_kernels::{Backend, HeadLossOptions, Precision};

use crate::block::Block;
use crate::checked::DecoderConfig;
use crate::config::DropoutSite;
use crate::dropout::dropout;
use crate::init::Initializer;
use crate::kv_cache::KvCache;
use crate::linear::Linear;
use crate::norm::NormLayer;
use crate::position::{AddedPositions, RotaryTable};
use crate::token_table::TokenTable;
use crate::tokens::Tokens;

/// A decoder with its weights. The fields' names are the weights' paths.
#[derive(Module, Debug)]
pub struct Decoder<B: BurnBackend> {
    /// The token embedding, `[vocab_size, d_model]`.
    pub tokens: TokenTable<B>,
    /// What is added to it by position.
    pub positions: AddedPositions<B>,
    /// Of the embeddings.
    pub norm_embedding: Option<NormLayer<B>>,
    /// The blocks in order.
    pub blocks: Vec<Block<B>>,
    /// After the last block.
    pub norm_final: NormLayer<B>,
    /// The output projection, `[vocab_size, d_model]`; none where the embedding serves. A packed decoder always has one.
    pub head: Option<TokenTable<B>>,
    /// The output projection's bias, `[vocab_size]`.
    pub head_bias: Option<Param<Tensor<B, 1>>>,
    rotary: Option<RotaryTable<B>>,
    #[module(skip)]
    config: DecoderConfig,
    #[module(skip)]
    precision: Precision,
}

impl DecoderConfig {
    /// A model with its first weights, a function of the configuration and `seed` alone.
    pub fn init<B: Backend>(&self, seed: u64, device: &Device<B>) -> Decoder<B> {
        self.init_within(seed, device, B::largest_buffer(device))
    }

    /// [`DecoderConfig::init`] where a buffer is at most `largest` bytes: its tables of tokens are in parts that are no larger.
    /// What the model computes does not depend on it, but for rounding.
    pub fn init_within<B: Backend>(
        &self,
        seed: u64,
        device: &Device<B>,
        largest: Option<u64>,
    ) -> Decoder<B> {
        self.initialized(&Initializer::new(self, Some(seed), device, largest))
    }

    /// A model whose maps and embeddings are zeros, for weights to be read over them: each is made when it is looked at.
    pub fn blank<B: Backend>(&self, device: &Device<B>) -> Decoder<B> {
        self.blank_within(device, B::largest_buffer(device))
    }

    /// [`DecoderConfig::blank`] with tables of tokens as [`DecoderConfig::init_within`] has them.
    pub fn blank_within<B: Backend>(&self, device: &Device<B>, largest: Option<u64>) -> Decoder<B> {
        self.initialized(&Initializer::new(self, None, device, largest))
    }

    fn initialized<B: Backend>(&self, from: &Initializer<'_, B>) -> Decoder<B> {
        Decoder {
            tokens: from.token_embedding("tokens", self.vocab_size),
            positions: AddedPositions::init(from, self),
            norm_embedding: self
                .norm_embedding
                .then(|| NormLayer::init(from, self.norm, self.d_model)),
            blocks: (0..self.n_layers)
                .map(|layer| Block::init(from, layer, self))
                .collect(),
            norm_final: NormLayer::init(from, self.norm, self.d_model),
            head: (!self.head.tied).then(|| from.head("head", self.vocab_size)),
            head_bias: self
                .head
                .bias
                .then(|| from.bias("head_bias", self.vocab_size, self.d_model)),
            rotary: RotaryTable::init(self, from.device()),
            config: self.clone(),
            precision: Precision::default(),
        }
    }
}

impl<B: Backend> Decoder<B> {
    /// What the model is.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// The same model with its products in another precision; what it holds stays as it is.
    pub fn with_precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        for linear in self.linears_mut() {
            linear.precision = precision;
        }
        for block in &mut self.blocks {
            block.attention.set_precision(precision);
        }
        self
    }

    /// The blocks' linear layers.
    pub(crate) fn linears_mut(&mut self) -> impl Iterator<Item = &mut Linear<B>> {
        self.blocks.iter_mut().flat_map(|block| {
            let feed = &mut block.feed_forward;
            let linears = [
                Some(&mut block.attention.qkv),
                Some(&mut block.attention.out),
                feed.gate.as_mut(),
                Some(&mut feed.up),
                Some(&mut feed.down),
            ];
            linears.into_iter().flatten()
        })
    }

    /// The device its weights are on.
    pub fn device(&self) -> Device<B> {
        self.tokens.device()
    }

    /// Logits of every position: `[batch, seq]` to `[batch, seq, vocab_size]`.
    ///
    /// Tokens are below `vocab_size` and at most `seq_len`: [`DecoderConfig::check_tokens`] says so for input.
    pub fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let hidden = self.hidden(tokens, None);
        self.logits(hidden)
    }

    /// Logits of every position of tokens that continue what the cache holds; they are added to it. Together they are
    /// at most the cache's capacity and the model's `seq_len`.
    pub fn forward_cached(
        &self,
        tokens: Tensor<B, 2, Int>,
        cache: &mut KvCache<B>,
    ) -> Tensor<B, 3> {
        let hidden = self.hidden(tokens, Some(cache));
        self.logits(hidden)
    }

    /// Logits of the last position alone, `[batch, vocab_size]`, as [`Decoder::forward_cached`]'s.
    pub fn next_logits(&self, tokens: Tensor<B, 2, Int>, cache: &mut KvCache<B>) -> Tensor<B, 2> {
        let hidden = self.hidden(tokens, Some(cache));
        let [batch, seq, _] = hidden.dims();
        let last = hidden.narrow(1, seq - 1, 1); // [batch, 1, d_model]
        let logits = self.logits(last); // [batch, 1, vocab_size]
        logits.reshape([batch, self.config.vocab_size])
    }

    /// The mean over each sequence's positions of the states that the head's weight is multiplied with, before any scale:
    /// `[batch, seq]` to `[batch, d_model]`. Tokens as in [`Decoder::forward`].
    pub fn mean_hidden(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        self.hidden(tokens, None).mean_dim(1).squeeze_dim(1)
    }

    /// The cross-entropy in nats, summed over all tokens but those whose target is ignored (below 0, as
    /// [`crate::IGNORED`]), `[1]`: `tokens` and `targets` `[batch, seq]`.
    pub fn loss_sum(
        &self,
        tokens: impl Into<Tokens<B>>,
        targets: Tensor<B, 2, Int>,
    ) -> Tensor<B, 1> {
        match self.packed_format() {
            // In blocks of logits: the fused loss takes a head in f32, which is not held for it.
            Some(_) => self.token_losses(tokens, targets).sum(),
            None => self.training_loss_sum(tokens, targets, HeadLossOptions::default()),
        }
    }

    /// [`Decoder::loss_sum`] with the terms that training may add to it. They are of the logits after the soft cap, where
    /// there is one.
    pub fn training_loss_sum(
        &self,
        tokens: impl Into<Tokens<B>>,
        targets: Tensor<B, 2, Int>,
        options: HeadLossOptions,
    ) -> Tensor<B, 1> {
        let hidden = self.hidden(tokens, None);
        self.training_loss_sum_of(hidden, targets, options)
    }

    /// [`Decoder::training_loss_sum`] from the states before the head, `[batch, seq, d_model]`.
    pub fn training_loss_sum_of(
        &self,
        hidden: Tensor<B, 3>,
        targets: Tensor<B, 2, Int>,
        options: HeadLossOptions,
    ) -> Tensor<B, 1> {
        let [batch, seq, _] = hidden.dims();
        let targets = targets.reshape([batch * seq]); // [tokens]
        let options = HeadLossOptions {
            soft_cap: self.config.head.soft_cap,
            ..options
        };
        let hidden = hidden.reshape([batch * seq, self.config.d_model]); // [tokens, d_model]
        let hidden = self.scaled_hidden(hidden);
        let bias = self.head_bias.as_ref().map(Param::val);
        self.table()
            .head_loss(hidden, bias, targets, options, self.precision)
    }

    /// What the head's weight is multiplied with: the hidden states `[tokens, d_model]`, scaled where the head is.
    fn scaled_hidden(&self, hidden: Tensor<B, 2>) -> Tensor<B, 2> {
        match self.config.logit_scale() {
            Some(scale) => hidden * scale,
            None => hidden,
        }
    }

    /// The attentions' weights after the softmax, block by block, `[batch, heads, seq, seq]` each; for linear attention
    /// those that its estimate amounts to. `tokens` `[batch, seq]` as in [`Decoder::forward`], which never makes them.
    pub fn attention_weights(&self, tokens: Tensor<B, 2, Int>) -> Vec<Tensor<B, 4>> {
        let rotary = self.rotary.as_ref();
        let mut x = self.embedded(&tokens.into(), 0);
        let mut weights = Vec::with_capacity(self.blocks.len());
        for block in &self.blocks {
            weights.push(block.attention_weights(x.clone(), rotary));
            x = block.forward(x, rotary, None, None);
        }
        weights
    }

    /// What the first block takes, `[batch, seq, d_model]`, of tokens whose first stands at `offset`.
    pub(crate) fn embedded(&self, tokens: &Tokens<B>, offset: usize) -> Tensor<B, 3> {
        self.embedded_with(tokens.ids.clone(), |x| {
            self.positions.add(x, offset, tokens.documents.as_ref())
        })
    }

    /// The same of `ids` `[batch, seq]`, whose positions `add` adds.
    pub(crate) fn embedded_with(
        &self,
        ids: Tensor<B, 2, Int>,
        add: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        let x = self.tokens.look_up(ids); // [batch, seq, d_model]
        let x = match self.config.scale_embedding {
            true => x * (self.config.d_model as f64).sqrt(),
            false => x,
        };
        let x = add(x);
        let x = dropout(x, self.config.dropout_at(DropoutSite::Embedding));
        match &self.norm_embedding {
            Some(norm) => norm.forward(x),
            None => x,
        }
    }

    /// The states before the head, `[batch, seq, d_model]`.
    pub(crate) fn hidden(
        &self,
        tokens: impl Into<Tokens<B>>,
        cache: Option<&mut KvCache<B>>,
    ) -> Tensor<B, 3> {
        let offset = cache.as_ref().map_or(0, |cache| cache.len());
        let tokens = tokens.into();
        let mut x = self.embedded(&tokens, offset);
        let mut caches = cache.map(|cache| cache.layers.iter_mut());
        for block in &self.blocks {
            let cache = caches.as_mut().and_then(Iterator::next);
            x = block.forward(x, self.rotary.as_ref(), tokens.documents.as_ref(), cache);
        }
        self.norm_final.forward(x)
    }

    /// `[batch, seq, d_model]` to `[batch, seq, vocab_size]`.
    pub(crate) fn logits(&self, hidden: Tensor<B, 3>) -> Tensor<B, 3> {
        let [batch, seq, width] = hidden.dims();
        let hidden = hidden.reshape([batch * seq, width]); // [tokens, d_model]
        let hidden = self.scaled_hidden(hidden);
        let bias = self.head_bias.as_ref().map(Param::val);
        let logits = self.table().logits(hidden, bias, self.precision); // [tokens, vocab_size]
        let cap = self.config.head.soft_cap;
        let logits = if cap > 0.0 {
            (logits / cap).tanh() * cap
        } else {
            logits
        };
        logits.reshape([batch, seq, self.config.vocab_size])
    }

    pub(crate) fn rotary(&self) -> Option<&RotaryTable<B>> {
        self.rotary.as_ref()
    }

    /// What the hidden states are multiplied with for the logits.
    pub(crate) fn table(&self) -> &TokenTable<B> {
        self.head.as_ref().unwrap_or(&self.tokens)
    }
}
