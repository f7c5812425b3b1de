//! Transformer block: attention and feed-forward sublayers around a residual stream.
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
//!
//! `sandwich` is `pre_norm` with another norm after each sublayer, before the sublayer's output is added. `output_norm`
//! has only those norms after the sublayers, as `norm1` and `norm2`. An optional cross-attention is wired like the other
//! sublayers and runs between them; in `parallel` it is a third branch.

mod config;

pub use config::BlockConfig;

use std::{iter, slice};

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend as BurnBackend;

use emberlm_kernels::{AttentionMask, Backend, Precision};

use crate::config::Wiring;
use crate::error::ContextError;
use crate::nn::attention::Attention;
use crate::nn::context::{AttentionContext, BlockContext};
use crate::nn::cross_attention::CrossAttention;
use crate::nn::cross_sublayer::CrossSublayer;
use crate::nn::dropout::dropout;
use crate::nn::feed_forward::FeedForwardLayer;
use crate::nn::linear::Linear;
use crate::nn::norm::Norm;
use crate::nn::packed::{BlockPass, RowSpan, Span};
use crate::nn::position::RotaryTable;
use crate::nn::probe::Point;
use crate::nn::residual_mix::ResidualMix;

/// One block of a stack.
///
/// ```
/// use burn::tensor::{Distribution, Tensor};
/// use burn_flex::Flex;
/// use emberlm_model::nn::{AttentionConfig, AttentionContext, BlockConfig, FeedForwardConfig};
///
/// let device = Default::default();
/// let config = BlockConfig::new(AttentionConfig::new(16, 4), FeedForwardConfig::new(16, 64));
/// let x = Tensor::random([2, 3, 16], Distribution::Default, &device);
/// let block = config.init::<Flex>(&device);
/// assert_eq!(block.forward(x, AttentionContext::default())?.dims(), [2, 3, 16]);
/// # Ok::<(), emberlm_model::ContextError>(())
/// ```
#[derive(Module, Debug)]
pub struct Block<B: BurnBackend> {
    /// Mixes the stack's input into the block's, if present.
    pub mix: Option<ResidualMix<B>>,
    /// Norm of the attention, if any.
    pub norm1: Option<Norm<B>>,
    /// Self-attention.
    pub attention: Attention<B>,
    /// Norm after the attention, with sandwich wiring.
    pub norm1_after: Option<Norm<B>>,
    /// Cross-attention, if any.
    pub cross: Option<CrossSublayer<B>>,
    /// Norm of the feed-forward layer; `None` if the wiring shares the first norm.
    pub norm2: Option<Norm<B>>,
    /// Feed-forward layer.
    pub feed_forward: FeedForwardLayer<B>,
    /// Norm after the feed-forward layer, with sandwich wiring.
    pub norm2_after: Option<Norm<B>>,
    #[module(skip)]
    wiring: Wiring,
    #[module(skip)]
    residual_scale: Option<f64>,
    #[module(skip)]
    residual_dropout: f64,
}

impl<B: Backend> Block<B> {
    /// Maps `[batch, seq, d_model]` to the same shape.
    ///
    /// # Errors
    /// Those of [`Attention::forward`], a memory without cross-attention, or a cross-attention without a memory.
    pub fn forward<'a>(
        &self,
        x: Tensor<B, 3>,
        context: impl Into<BlockContext<'a, B>>,
    ) -> Result<Tensor<B, 3>, ContextError> {
        let context = context.into();
        self.check(&context)?;
        Ok(self.run(x, context))
    }

    /// Returns an error if the block does not support the context.
    fn check(&self, context: &BlockContext<'_, B>) -> Result<(), ContextError> {
        if self.mix.is_some() && context.embedded.is_none() {
            return Err(ContextError::NoEmbeddings);
        }
        let AttentionContext {
            mask, cache, ids, ..
        } = &context.attention;
        self.check_attentions(
            mask,
            cache.is_some(),
            ids.is_some(),
            context.memory.is_some(),
        )
    }

    /// Returns an error if the attentions do not support the context.
    pub(crate) fn check_attentions(
        &self,
        mask: &AttentionMask<B>,
        cached: bool,
        has_ids: bool,
        has_memory: bool,
    ) -> Result<(), ContextError> {
        match (&self.cross, has_memory) {
            (None, true) => Err(ContextError::NoCrossAttention),
            (Some(_), false) => Err(ContextError::NoMemory),
            (None, false) | (Some(_), true) => self.attention.check(mask, cached, has_ids),
        }
    }

    /// [`Block::forward`] with a context that has been checked.
    pub(crate) fn run(&self, x: Tensor<B, 3>, context: BlockContext<'_, B>) -> Tensor<B, 3> {
        let BlockContext {
            attention,
            memory,
            embedded,
            routings,
        } = context;
        let mut span = Span {
            rows: RowSpan::of_batch(&x),
            mask: attention.mask,
            cache: attention.cache,
            memory,
        };
        let mut pass = BlockPass {
            routings,
            ids: attention.ids,
            embedded,
            ..BlockPass::new(attention.rotary)
        };
        self.run_rows(x, slice::from_mut(&mut span), &mut pass)
    }

    /// Maps the rows of several sequences, `[1, rows, d_model]` or a batch, to the same shape.
    pub(crate) fn run_rows(
        &self,
        x: Tensor<B, 3>,
        spans: &mut [Span<'_, B>],
        pass: &mut BlockPass<'_, B>,
    ) -> Tensor<B, 3> {
        let attention = &self.attention;
        let x = match (&self.mix, pass.embedded.take()) {
            (Some(mix), Some(embedded)) => mix.forward(x, embedded),
            _ => x,
        };
        let x = pass.see(Point::ResidPre, x);
        let x = match self.wiring {
            Wiring::PreNorm => {
                let normed = pass.see(Point::Norm1, self.first_norm(x.clone()));
                let x = self.added(x, Point::AttentionOut, pass, |residual, pass| {
                    attention.run_rows(normed, residual, spans, pass)
                });
                let x = self.crossed(x, |cross, x| {
                    let normed = self.cross_norm(cross, x.clone());
                    self.added(x, Point::CrossOut, pass, |residual, pass| {
                        cross.run_rows(normed, residual, spans, pass)
                    })
                });
                let x = pass.see(Point::ResidMid, x);
                let normed = pass.see(Point::Norm2, self.second_norm(x.clone()));
                self.feed(normed, x, pass)
            }
            Wiring::PostNorm => {
                let attended =
                    self.added(x.clone(), Point::AttentionOut, pass, |residual, pass| {
                        attention.run_rows(x, residual, spans, pass)
                    });
                let attended = pass.see(Point::ResidMid, attended);
                let x = pass.see(Point::Norm1, self.first_norm(attended));
                let x = self.crossed(x, |cross, x| {
                    let attended =
                        self.added(x.clone(), Point::CrossOut, pass, |residual, pass| {
                            cross.run_rows(x, residual, spans, pass)
                        });
                    self.cross_norm(cross, attended)
                });
                let fed = self.feed(x.clone(), x, pass);
                let fed = pass.see(Point::ResidPost, fed);
                return pass.see(Point::Norm2, self.second_norm(fed));
            }
            Wiring::OutputNorm => {
                let attended = attention.run_rows(x.clone(), None, spans, pass);
                let norm = self.norm1.as_ref();
                let x = self.added_normed(x, norm, attended, Point::AttentionOut, pass);
                let x = self.crossed(x, |cross, x| {
                    let attended = cross.run_rows(x.clone(), None, spans, pass);
                    self.added_normed(x, cross.norm.as_ref(), attended, Point::CrossOut, pass)
                });
                let x = pass.see(Point::ResidMid, x);
                let fed = self.feed_forward.run(x.clone(), None, pass.feed_forward());
                let norm = self.norm2.as_ref();
                self.added_normed(x, norm, fed, Point::FeedForwardOut, pass)
            }
            Wiring::Sandwich => {
                let normed = pass.see(Point::Norm1, self.first_norm(x.clone()));
                let attended = attention.run_rows(normed, None, spans, pass);
                let norm = self.norm1_after.as_ref();
                let x = self.added_normed(x, norm, attended, Point::AttentionOut, pass);
                let x = self.crossed(x, |cross, x| {
                    let normed = self.cross_norm(cross, x.clone());
                    let attended = cross.run_rows(normed, None, spans, pass);
                    self.added_normed(
                        x,
                        cross.norm_after.as_ref(),
                        attended,
                        Point::CrossOut,
                        pass,
                    )
                });
                let x = pass.see(Point::ResidMid, x);
                let normed = pass.see(Point::Norm2, self.second_norm(x.clone()));
                let fed = self.feed_forward.run(normed, None, pass.feed_forward());
                let norm = self.norm2_after.as_ref();
                self.added_normed(x, norm, fed, Point::FeedForwardOut, pass)
            }
            Wiring::Parallel { .. } => {
                let normed = pass.see(Point::Norm1, self.first_norm(x.clone()));
                let fed = pass.see(Point::Norm2, self.second_norm(x.clone()));
                let branch = self.cross.as_ref();
                let branch = branch.map(|cross| (cross, self.cross_norm(cross, x.clone())));
                let mut x = self.added(x, Point::AttentionOut, pass, |residual, pass| {
                    attention.run_rows(normed, residual, spans, pass)
                });
                if let Some((cross, normed)) = branch {
                    x = self.added(x, Point::CrossOut, pass, |residual, pass| {
                        cross.run_rows(normed, residual, spans, pass)
                    });
                }
                self.feed(fed, x, pass)
            }
        };
        pass.see(Point::ResidPost, x)
    }

    /// The linear layers except the routers of mixtures, with their paths.
    pub(crate) fn linears(&self) -> impl Iterator<Item = (String, &Linear<B>)> {
        let attention = &self.attention;
        let gate = attention.gate.iter().map(|gate| ("attention.gate", gate));
        let latent = attention.latent.iter();
        let q_up = latent.flat_map(|latent| latent.q_up.as_ref());
        let own = iter::once(("attention.qkv", &attention.qkv))
            .chain(q_up.map(|q_up| ("attention.latent.q_up", q_up)))
            .chain(gate)
            .chain([("attention.out", &attention.out)]);
        let cross = self.cross.iter().flat_map(|cross| {
            let CrossAttention { q, kv, out, .. } = &cross.attention;
            [
                ("cross.attention.q", q),
                ("cross.attention.kv", kv),
                ("cross.attention.out", out),
            ]
        });
        let attentions = own.chain(cross);
        let attentions = attentions.map(|(name, linear)| (name.to_owned(), linear));
        let feed_forward = self.feed_forward.linears();
        let feed_forward =
            feed_forward.map(|(name, linear)| (format!("feed_forward.{name}"), linear));
        attentions.chain(feed_forward)
    }

    /// The linear layers in the order of [`Block::linears`].
    pub(crate) fn linears_mut(&mut self) -> impl Iterator<Item = &mut Linear<B>> {
        let attention = &mut self.attention;
        let latent = attention.latent.iter_mut();
        let own = iter::once(&mut attention.qkv)
            .chain(latent.flat_map(|latent| latent.q_up.as_mut()))
            .chain(&mut attention.gate)
            .chain([&mut attention.out]);
        let cross = self.cross.iter_mut().flat_map(|cross| {
            let CrossAttention { q, kv, out, .. } = &mut cross.attention;
            [q, kv, out]
        });
        let attentions = own.chain(cross);
        attentions.chain(self.feed_forward.linears_mut())
    }

    /// Sets the precision of the matrix products, except those of routers.
    pub(crate) fn set_precision(&mut self, precision: Precision) {
        self.attention.set_precision(precision);
        if let Some(cross) = &mut self.cross {
            cross.attention.set_precision(precision);
        }
        for linear in self.linears_mut() {
            linear.precision = precision;
        }
    }

    /// Returns the residual stream after the cross-attention sublayer; `x` if there is none.
    fn crossed(
        &self,
        x: Tensor<B, 3>,
        sublayer: impl FnOnce(&CrossSublayer<B>, Tensor<B, 3>) -> Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        match &self.cross {
            Some(cross) => sublayer(cross, x),
            None => x,
        }
    }

    /// Computes the self-attention's weights: `[batch, heads, seq, seq]`.
    ///
    /// # Errors
    /// Those of [`Attention::weights`].
    pub fn attention_weights(
        &self,
        x: Tensor<B, 3>,
        rotary: Option<&RotaryTable<B>>,
        mask: AttentionMask<B>,
    ) -> Result<Tensor<B, 4>, ContextError> {
        self.attention.check_weights(&mask)?;
        let x = match self.wiring {
            Wiring::PreNorm | Wiring::Sandwich | Wiring::Parallel { .. } => self.first_norm(x),
            Wiring::PostNorm | Wiring::OutputNorm => x,
        };
        Ok(self.attention.run_weights(x, rotary, mask))
    }

    /// Adds the feed-forward layer's output for `x` to `residual`.
    fn feed(
        &self,
        x: Tensor<B, 3>,
        residual: Tensor<B, 3>,
        pass: &mut BlockPass<'_, B>,
    ) -> Tensor<B, 3> {
        self.added(residual, Point::FeedForwardOut, pass, |residual, pass| {
            self.feed_forward.run(x, residual, pass.feed_forward())
        })
    }

    /// Adds a sublayer's output to the residual stream. Without dropout, a factor or a probe in between, the sublayer's last
    /// matrix product accumulates into the residual stream.
    fn added(
        &self,
        residual: Tensor<B, 3>,
        point: Point,
        pass: &mut BlockPass<'_, B>,
        sublayer: impl FnOnce(Option<Tensor<B, 3>>, &mut BlockPass<'_, B>) -> Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        if self.residual_dropout == 0.0 && self.residual_scale.is_none() && pass.probe.is_none() {
            return sublayer(Some(residual), pass);
        }
        let output = sublayer(None, pass);
        self.added_normed(residual, None, output, point, pass)
    }

    /// Adds a sublayer's output to the residual stream after `norm`, if any.
    fn added_normed(
        &self,
        residual: Tensor<B, 3>,
        norm: Option<&Norm<B>>,
        output: Tensor<B, 3>,
        point: Point,
        pass: &mut BlockPass<'_, B>,
    ) -> Tensor<B, 3> {
        let output = match norm {
            Some(norm) => norm.forward(output),
            None => output,
        };
        let output = self.scaled(dropout(output, self.residual_dropout));
        residual + pass.see(point, output)
    }

    /// Applies the factor on a sublayer's output.
    fn scaled(&self, output: Tensor<B, 3>) -> Tensor<B, 3> {
        match self.residual_scale {
            Some(scale) => output * scale,
            None => output,
        }
    }

    /// Applies the norm of the attention, if any.
    fn first_norm(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        match &self.norm1 {
            Some(norm) => norm.forward(x),
            None => x,
        }
    }

    /// Applies the norm of the cross-attention, or the first norm if it is shared.
    fn cross_norm(&self, cross: &CrossSublayer<B>, x: Tensor<B, 3>) -> Tensor<B, 3> {
        match &cross.norm {
            Some(norm) => norm.forward(x),
            None => self.first_norm(x),
        }
    }

    /// Applies the norm of the feed-forward layer, or the first norm if it is shared.
    fn second_norm(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        match &self.norm2 {
            Some(norm) => norm.forward(x),
            None => self.first_norm(x),
        }
    }
}
