//! The language-model head: hidden states to logits or their cross-entropy.

use burn::module::{Module, Param};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Int, Tensor};

use emberlm_kernels::{Backend, HeadLossOptions, Precision};

use crate::nn::init::Initializer;
use crate::nn::token_table::TokenTable;

/// Configuration of an [`LmHead`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LmHeadConfig {
    /// Number of token ids.
    pub vocab_size: usize,
    /// Width of the hidden states.
    pub d_model: usize,
    /// True if the token embedding serves as the projection.
    pub tied: bool,
    /// True if the projection has a bias.
    pub bias: bool,
    /// Factor on the logits, before a bias is added.
    pub scale: Option<f64>,
    /// Bounds logits to ±cap by `cap · tanh(logits / cap)`.
    pub soft_cap: Option<f64>,
}

impl LmHeadConfig {
    /// An untied projection without a bias.
    pub const fn new(vocab_size: usize, d_model: usize) -> Self {
        Self {
            vocab_size,
            d_model,
            tied: false,
            bias: false,
            scale: None,
            soft_cap: None,
        }
    }

    /// Number of parameter elements; a tied projection belongs to the embedding.
    pub(crate) fn parameters(&self) -> u128 {
        let weight = self.vocab_size as u128 * self.d_model as u128;
        let bias = self.vocab_size as u128;
        u128::from(!self.tied) * weight + u128::from(self.bias) * bias
    }

    /// Builds a head with the initial weights of [`crate::nn::LinearConfig::init`].
    pub fn init<B: Backend>(&self, device: &Device<B>) -> LmHead<B> {
        self.init_from(&Initializer::standalone(self.d_model, device))
    }

    pub(crate) fn init_from<B: Backend>(&self, from: &Initializer<'_, B>) -> LmHead<B> {
        let shape = [self.vocab_size, self.d_model];
        LmHead {
            head: (!self.tied).then(|| from.head("head", shape)),
            head_bias: self
                .bias
                .then(|| from.bias("head_bias", self.vocab_size, self.d_model)),
            scale: self.scale,
            soft_cap: self.soft_cap,
            precision: Precision::default(),
        }
    }
}

/// Computes `soft_cap(scale · hidden · Wᵀ + bias)`; `W` is the head's table or the embedding's.
#[derive(Module, Debug)]
pub struct LmHead<B: BurnBackend> {
    /// Output projection `[vocab_size, d_model]`; `None` if the head is tied to the embedding. A packed head is always
    /// stored here, even if tied.
    pub head: Option<TokenTable<B>>,
    /// Bias `[vocab_size]` of the output projection.
    pub head_bias: Option<Param<Tensor<B, 1>>>,
    #[module(skip)]
    scale: Option<f64>,
    #[module(skip)]
    soft_cap: Option<f64>,
    #[module(skip)]
    pub(crate) precision: Precision,
}

impl<B: Backend> LmHead<B> {
    /// Maps `[batch, seq, d_model]` to logits `[batch, seq, vocab_size]`. `tokens` is the embedding, used by a tied
    /// head.
    pub fn forward(&self, hidden: Tensor<B, 3>, tokens: &TokenTable<B>) -> Tensor<B, 3> {
        let [batch, seq, width] = hidden.dims();
        let hidden = hidden.reshape([batch * seq, width]); // [tokens, d_model]
        let hidden = self.scaled(hidden);
        let bias = self.head_bias.as_ref().map(Param::val);
        let logits = self.table(tokens).logits(hidden, bias, self.precision); // [tokens, vocab_size]
        let logits = match self.soft_cap {
            Some(cap) => (logits / cap).tanh() * cap,
            None => logits,
        };
        let vocab_size = logits.dims()[1];
        logits.reshape([batch, seq, vocab_size])
    }

    /// Computes the cross-entropy in nats of hidden states `[batch, seq, d_model]`, summed over the targets `[batch,
    /// seq]` that are at least 0, plus the additional terms of `options`: `[1]`. `tokens` is the embedding, used by a
    /// tied head.
    pub fn loss_sum(
        &self,
        hidden: Tensor<B, 3>,
        tokens: &TokenTable<B>,
        targets: Tensor<B, 2, Int>,
        options: HeadLossOptions,
    ) -> Tensor<B, 1> {
        let options = self.capped(options);
        let [batch, seq, width] = hidden.dims();
        let targets = targets.reshape([batch * seq]); // [tokens]
        let hidden = hidden.reshape([batch * seq, width]); // [tokens, d_model]
        let hidden = self.scaled(hidden);
        let bias = self.head_bias.as_ref().map(Param::val);
        self.table(tokens)
            .head_loss(hidden, bias, targets, options, self.precision)
    }

    /// Computes the cross-entropies in nats of hidden states `[batch, seq, d_model]` with targets `[batch, seq]`: `[batch,
    /// seq]`, 0 for negative targets. `tokens` is the embedding, used by a tied head.
    pub fn losses(
        &self,
        hidden: Tensor<B, 3>,
        tokens: &TokenTable<B>,
        targets: Tensor<B, 2, Int>,
    ) -> Tensor<B, 2> {
        let options = self.capped(HeadLossOptions::default());
        let [batch, seq, width] = hidden.dims();
        let targets = targets.reshape([batch * seq]); // [tokens]
        let hidden = hidden.reshape([batch * seq, width]); // [tokens, d_model]
        let hidden = self.scaled(hidden);
        let bias = self.head_bias.as_ref().map(Param::val);
        let table = self.table(tokens);
        let losses = table.head_losses(hidden, bias, targets, options, self.precision);
        losses.reshape([batch, seq])
    }

    fn capped(&self, options: HeadLossOptions) -> HeadLossOptions {
        HeadLossOptions {
            soft_cap: self.soft_cap.unwrap_or(0.0),
            ..options
        }
    }

    fn scaled(&self, hidden: Tensor<B, 2>) -> Tensor<B, 2> {
        match self.scale {
            Some(scale) => hidden * scale,
            None => hidden,
        }
    }

    /// The table that projects hidden states to logits.
    pub(crate) fn table<'a>(&'a self, tokens: &'a TokenTable<B>) -> &'a TokenTable<B> {
        self.head.as_ref().unwrap_or(tokens)
    }
}
