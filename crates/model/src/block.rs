//! A block: attention and feed-forward around the residual stream.
//!
//! ```text
//! pre_norm                    post_norm                   parallel
//!
//! x ──┬───────────┐           x ──┬───────────┐           x ──┬──────┬──────────┐
//!    norm1        │          attention        │              norm1  norm2 (or the shared norm1)
//!  attention      │               └──────── + ┘          attention  feed_forward
//!     └───────► + ┘                       norm1               └──► + ◄───┴──────┘
//! ┌──────────────┴┐           ┌──────────────┴┐                    │
//! norm2           │         feed_forward      │                    ▼
//! feed_forward    │               └──────── + ┘
//!     └───────► + ┘                       norm2
//!               ▼                           ▼
//! ```

use burn::module::Module;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Int, Tensor};

use emberlm_kernels::{Backend, ops};

use crate::attention::Attention;
use crate::checked::DecoderConfig;
use crate::config::{DropoutSite, Wiring};
use crate::dropout::dropout;
use crate::feed_forward::FeedForwardLayer;
use crate::init::Initializer;
use crate::kv_cache::LayerCache;
use crate::norm::NormLayer;
use crate::position::RotaryTable;
use crate::ragged::Piece;

/// One block of the decoder.
#[derive(Module, Debug)]
pub struct Block<B: BurnBackend> {
    /// Of the attention.
    pub norm1: NormLayer<B>,
    /// Mixes tokens.
    pub attention: Attention<B>,
    /// Of the feed-forward part; none where the wiring shares the first.
    pub norm2: Option<NormLayer<B>>,
    /// Works on each token.
    pub feed_forward: FeedForwardLayer<B>,
    #[module(skip)]
    wiring: Wiring,
    #[module(skip)]
    residual_dropout: f64,
}

impl<B: Backend> Block<B> {
    pub(crate) fn init(from: &Initializer<'_, B>, layer: usize, config: &DecoderConfig) -> Self {
        let path = format!("blocks.{layer}");
        let norm = || NormLayer::init(from, config.norm, config.d_model);
        let shared = config.wiring == Wiring::Parallel { shared_norm: true };
        Self {
            norm1: norm(),
            attention: Attention::init(from, layer, config),
            norm2: (!shared).then(norm),
            feed_forward: FeedForwardLayer::init(from, &format!("{path}.feed_forward"), config),
            wiring: config.wiring,
            residual_dropout: config.dropout_at(DropoutSite::Residual),
        }
    }

    /// `[batch, seq, d_model]` to the same; `documents` as [`Attention::forward`] takes them.
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        rotary: Option<&RotaryTable<B>>,
        documents: Option<&Tensor<B, 2, Int>>,
        cache: Option<&mut LayerCache<B>>,
    ) -> Tensor<B, 3> {
        self.wired(x, |x, residual| {
            self.attention
                .forward(x, rotary, documents, cache, residual)
        })
    }

    /// The rows of several sequences, `[1, rows, d_model]` to the same: see [`Attention::ragged`].
    pub(crate) fn ragged(
        &self,
        x: Tensor<B, 3>,
        angles: Option<&ops::Angles<B>>,
        layer: usize,
        pieces: &mut [Piece<'_, B>],
    ) -> Tensor<B, 3> {
        self.wired(x, |x, residual| {
            self.attention.ragged(x, angles, layer, pieces, residual)
        })
    }

    /// The block around its attention: `attend` takes what is attended to, and what that is added to where nothing comes
    /// between.
    fn wired(
        &self,
        x: Tensor<B, 3>,
        attend: impl FnOnce(Tensor<B, 3>, Option<Tensor<B, 3>>) -> Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        match self.wiring {
            Wiring::PreNorm => {
                let normed = self.norm1.forward(x.clone());
                let x = self.added(x, |residual| attend(normed, residual));
                self.feed(self.second_norm(x.clone()), x)
            }
            Wiring::PostNorm => {
                let attended = self.added(x.clone(), |residual| attend(x, residual));
                let x = self.norm1.forward(attended);
                self.second_norm(self.feed(x.clone(), x))
            }
            Wiring::Parallel { .. } => {
                let normed = self.norm1.forward(x.clone());
                let fed = self.second_norm(x.clone());
                let x = self.added(x, |residual| attend(normed, residual));
                self.feed(fed, x)
            }
        }
    }

    /// The weights of its attention, `[batch, heads, seq, seq]`.
    pub fn attention_weights(
        &self,
        x: Tensor<B, 3>,
        rotary: Option<&RotaryTable<B>>,
    ) -> Tensor<B, 4> {
        let x = match self.wiring {
            Wiring::PreNorm | Wiring::Parallel { .. } => self.norm1.forward(x),
            Wiring::PostNorm => x,
        };
        self.attention.weights(x, rotary)
    }

    /// The feed-forward part of `x`, added to `residual`.
    fn feed(&self, x: Tensor<B, 3>, residual: Tensor<B, 3>) -> Tensor<B, 3> {
        self.added(residual, |residual| self.feed_forward.forward(x, residual))
    }

    /// What a part adds to the residual stream: at once as it is made, unless there is a dropout between the two.
    fn added(
        &self,
        residual: Tensor<B, 3>,
        part: impl FnOnce(Option<Tensor<B, 3>>) -> Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        if self.residual_dropout == 0.0 {
            return part(Some(residual));
        }
        residual + dropout(part(None), self.residual_dropout)
    }

    /// The feed-forward's norm, the first where it is shared.
    fn second_norm(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.norm2.as_ref().unwrap_or(&self.norm1).forward(x)
    }
}
