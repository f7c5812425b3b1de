//! Embeddings of tokens and their positions.

use burn::module::{Module, Param};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Int, Tensor};

use emberlm_kernels::{Backend, ops};

use crate::config;
use crate::nn::dropout::dropout;
use crate::nn::init::Initializer;
use crate::nn::norm::{Norm, NormConfig};
use crate::nn::position::{AddedPositions, AddedPositionsConfig};
use crate::nn::token_table::TokenTable;
use crate::nn::tokens::Tokens;

/// Configuration of [`Embeddings`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EmbeddingsConfig {
    /// Number of token ids.
    pub vocab_size: usize,
    /// Width of the output.
    pub d_model: usize,
    /// Position vectors to add, if any.
    pub positions: AddedPositionsConfig,
    /// Number of segment vectors, one of which is added to each token (BERT's token types); 0 for none.
    pub segments: usize,
    /// Factor on the token embeddings, if any.
    pub scale: Option<f64>,
    /// Norm of the embeddings, if any.
    pub norm: Option<config::Norm>,
    /// Probability of dropping an element during training.
    pub dropout: f64,
}

impl EmbeddingsConfig {
    /// Token embeddings without positions, scale, norm or dropout.
    pub const fn new(vocab_size: usize, d_model: usize) -> Self {
        Self {
            vocab_size,
            d_model,
            positions: AddedPositionsConfig::None,
            segments: 0,
            scale: None,
            norm: None,
            dropout: 0.0,
        }
    }

    /// Number of elements in the token table.
    pub(crate) fn tokens(&self) -> u128 {
        self.vocab_size as u128 * self.d_model as u128
    }

    /// The norm of the embeddings.
    pub(crate) fn norm(&self) -> Option<NormConfig> {
        Some(NormConfig::new(self.norm?, self.d_model))
    }

    /// Builds embeddings with PyTorch's initial weights, `N(0, 1)`, drawn from the backend's random state.
    pub fn init<B: Backend>(&self, device: &Device<B>) -> Embeddings<B> {
        self.init_from(&Initializer::standalone(self.d_model, device))
    }

    pub(crate) fn init_from<B: Backend>(&self, from: &Initializer<'_, B>) -> Embeddings<B> {
        Embeddings {
            tokens: from.token_embedding("tokens", [self.vocab_size, self.d_model]),
            positions: self.positions.init_from(from, "positions", self.d_model),
            segments: (self.segments > 0)
                .then(|| from.embedding("segments", [self.segments, self.d_model])),
            norm_embedding: self.norm().map(|norm| norm.init(from.device())),
            scale: self.scale,
            dropout: self.dropout,
        }
    }
}

/// Maps token ids to vectors: `dropout(norm(scale · tokens[id] + positions[i] + segments[segment]))`.
#[derive(Module, Debug)]
pub struct Embeddings<B: BurnBackend> {
    /// Token embedding `[vocab_size, d_model]`.
    pub tokens: TokenTable<B>,
    /// Position vectors.
    pub positions: AddedPositions<B>,
    /// Segment vectors `[segments, d_model]`.
    pub segments: Option<Param<Tensor<B, 2>>>,
    /// Norm of the sum.
    pub norm_embedding: Option<Norm<B>>,
    #[module(skip)]
    scale: Option<f64>,
    #[module(skip)]
    dropout: f64,
}

impl<B: Backend> Embeddings<B> {
    /// Embeds tokens `[batch, seq]` as `[batch, seq, d_model]`; the first token is at position `offset`.
    pub fn forward(&self, tokens: &Tokens<B>, offset: usize) -> Tensor<B, 3> {
        self.forward_with_segments(tokens, None, offset)
    }

    /// [`Embeddings::forward`] of tokens that belong to `segments` `[batch, seq]`; without them, all belong to segment 0.
    pub fn forward_with_segments(
        &self,
        tokens: &Tokens<B>,
        segments: Option<Tensor<B, 2, Int>>,
        offset: usize,
    ) -> Tensor<B, 3> {
        let x = self.scaled(tokens.ids.clone());
        let documents = tokens.documents.as_ref();
        self.normed(self.positions.add(x, offset, documents), segments)
    }

    /// Embeds ids `[1, rows]` at the positions `[rows]`, of segments `[1, rows]`, as `[1, rows, d_model]`.
    pub(crate) fn forward_at(
        &self,
        ids: Tensor<B, 2, Int>,
        positions: &Tensor<B, 1, Int>,
        segments: Option<Tensor<B, 2, Int>>,
    ) -> Tensor<B, 3> {
        let x = self.positions.add_at(self.scaled(ids), positions);
        self.normed(x, segments)
    }

    fn scaled(&self, ids: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let x = self.tokens.look_up(ids); // [batch, seq, d_model]
        match self.scale {
            Some(scale) => x * scale,
            None => x,
        }
    }

    /// Adds the segment vectors, then applies the norm and dropout.
    fn normed(&self, x: Tensor<B, 3>, segments: Option<Tensor<B, 2, Int>>) -> Tensor<B, 3> {
        let x = match (&self.segments, segments) {
            (None, _) => x,
            (Some(table), None) => x + table.val().narrow(0, 0, 1).unsqueeze(),
            (Some(table), Some(ids)) => x + ops::embedding(table.val(), ids),
        };
        let x = match &self.norm_embedding {
            Some(norm) => norm.forward(x),
            None => x,
        };
        dropout(x, self.dropout)
    }
}
