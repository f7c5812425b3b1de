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

use std::cell::RefCell;

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend as BurnBackend;

use emberlm_kernels::{AttentionMask, Backend, ops};

use crate::config::Wiring;
use crate::error::ContextError;
use crate::nn::adapter_rows::AdapterRows;
use crate::nn::attention::Attention;
use crate::nn::context::{AttentionContext, BlockContext, FeedForwardContext};
use crate::nn::cross_sublayer::CrossSublayer;
use crate::nn::dropout::dropout;
use crate::nn::feed_forward::FeedForwardLayer;
use crate::nn::kv_cache::CachedRows;
use crate::nn::norm::Norm;
use crate::nn::position::RotaryTable;
use crate::nn::row_group::RowGroup;

/// Computes the cross-attention of an input and adds the residual stream, the last argument, if given.
type CrossAttend<'a, B> =
    dyn Fn(&CrossSublayer<B>, Tensor<B, 3>, Option<Tensor<B, 3>>) -> Tensor<B, 3> + 'a;

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
        let AttentionContext { mask, cache, .. } = &context.attention;
        self.check(mask, cache.is_some(), context.memory.is_some())?;
        Ok(self.run(x, context))
    }

    /// Returns an error if the block does not support the context.
    pub(crate) fn check(
        &self,
        mask: &AttentionMask<B>,
        cached: bool,
        has_memory: bool,
    ) -> Result<(), ContextError> {
        match (&self.cross, has_memory) {
            (None, true) => Err(ContextError::NoCrossAttention),
            (Some(_), false) => Err(ContextError::NoMemory),
            (None, false) | (Some(_), true) => self.attention.check(mask, cached),
        }
    }

    /// [`Block::forward`] with a context that has been checked.
    pub(crate) fn run(&self, x: Tensor<B, 3>, context: BlockContext<'_, B>) -> Tensor<B, 3> {
        let BlockContext {
            attention,
            memory,
            routings,
        } = context;
        let cross = memory.map(|memory| {
            move |cross: &CrossSublayer<B>, x, residual| cross.attend(x, memory.clone(), residual)
        });
        let cross = cross.as_ref().map(|attend| attend as &CrossAttend<'_, B>);
        let context = FeedForwardContext {
            routings,
            adapters: None,
        };
        self.wired(x, cross, context, |x, residual| {
            self.attention.run(x, attention, residual)
        })
    }

    /// [`Block::run`] that also returns the weights of the cross-attention, `[batch, heads, seq, memory]`; `None` without
    /// one.
    pub(crate) fn run_with_cross_weights(
        &self,
        x: Tensor<B, 3>,
        context: BlockContext<'_, B>,
    ) -> (Tensor<B, 3>, Option<Tensor<B, 4>>) {
        let (attention, memory) = (context.attention, context.memory);
        let weights = RefCell::new(None);
        let cross = memory.map(|memory| {
            let weights = &weights;
            move |cross: &CrossSublayer<B>, x: Tensor<B, 3>, residual| {
                *weights.borrow_mut() = Some(cross.weights(x.clone(), memory.clone()));
                cross.attend(x, memory.clone(), residual)
            }
        });
        let cross = cross.as_ref().map(|attend| attend as &CrossAttend<'_, B>);
        let context = FeedForwardContext {
            routings: context.routings,
            adapters: None,
        };
        let x = self.wired(x, cross, context, |x, residual| {
            self.attention.run(x, attention, residual)
        });
        (x, weights.into_inner())
    }

    /// Maps the rows of several sequences, `[1, rows, d_model]`, to the same shape; see [`Attention::ragged`].
    /// `adapters` holds the adapter of each row.
    pub(crate) fn ragged(
        &self,
        x: Tensor<B, 3>,
        angles: Option<&ops::Angles<B>>,
        sequences: Vec<CachedRows<'_, B>>,
        adapters: Option<&AdapterRows>,
    ) -> Tensor<B, 3> {
        let memories = sequences
            .iter()
            .filter_map(|sequence| Some((sequence.rows, sequence.memory?)));
        let memories: Vec<_> = memories.collect();
        let cross = |cross: &CrossSublayer<B>, x, residual| {
            let attention = &cross.attention;
            attention.ragged(x, &memories, residual)
        };
        let cross = (!memories.is_empty()).then_some(&cross as &CrossAttend<'_, B>);
        let context = FeedForwardContext {
            routings: None,
            adapters,
        };
        self.wired(x, cross, context, |x, residual| {
            let attention = &self.attention;
            attention.ragged(x, angles, sequences, adapters, residual)
        })
    }

    /// Processes the rows of several texts, `[1, rows, d_model]` to the same shape; see [`Attention::grouped`].
    pub(crate) fn grouped(
        &self,
        x: Tensor<B, 3>,
        rotary: Option<&RotaryTable<B>>,
        groups: &[RowGroup],
    ) -> Tensor<B, 3> {
        self.wired(x, None, FeedForwardContext::default(), |x, residual| {
            self.attention.grouped(x, rotary, groups, residual)
        })
    }

    /// Runs the sublayers in the order of the wiring. `attend` computes the self-attention of its first argument and
    /// adds the residual stream, its second argument, if given; `cross_attend` does so for the cross-attention.
    fn wired(
        &self,
        x: Tensor<B, 3>,
        cross_attend: Option<&CrossAttend<'_, B>>,
        context: FeedForwardContext<'_, B>,
        attend: impl FnOnce(Tensor<B, 3>, Option<Tensor<B, 3>>) -> Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        match self.wiring {
            Wiring::PreNorm => {
                let normed = self.first_norm(x.clone());
                let x = self.added(x, |residual| attend(normed, residual));
                let x = self.crossed(x, cross_attend, |cross, x, attend| {
                    let normed = self.cross_norm(cross, x.clone());
                    self.added(x, |residual| attend(cross, normed, residual))
                });
                self.feed(self.second_norm(x.clone()), x, context)
            }
            Wiring::PostNorm => {
                let attended = self.added(x.clone(), |residual| attend(x, residual));
                let x = self.first_norm(attended);
                let x = self.crossed(x, cross_attend, |cross, x, attend| {
                    let attended = self.added(x.clone(), |residual| attend(cross, x, residual));
                    self.cross_norm(cross, attended)
                });
                self.second_norm(self.feed(x.clone(), x, context))
            }
            Wiring::OutputNorm => {
                let x = self.added_normed(x.clone(), self.norm1.as_ref(), attend(x, None));
                let x = self.crossed(x, cross_attend, |cross, x, attend| {
                    let attended = attend(cross, x.clone(), None);
                    self.added_normed(x, cross.norm.as_ref(), attended)
                });
                let fed = self.feed_forward.run(x.clone(), None, context);
                self.added_normed(x, self.norm2.as_ref(), fed)
            }
            Wiring::Sandwich => {
                let normed = self.first_norm(x.clone());
                let x = self.added_normed(x, self.norm1_after.as_ref(), attend(normed, None));
                let x = self.crossed(x, cross_attend, |cross, x, attend| {
                    let normed = self.cross_norm(cross, x.clone());
                    let attended = attend(cross, normed, None);
                    self.added_normed(x, cross.norm_after.as_ref(), attended)
                });
                let normed = self.second_norm(x.clone());
                let fed = self.feed_forward.run(normed, None, context);
                self.added_normed(x, self.norm2_after.as_ref(), fed)
            }
            Wiring::Parallel { .. } => {
                let normed = self.first_norm(x.clone());
                let fed = self.second_norm(x.clone());
                let branch = self.cross.as_ref().zip(cross_attend);
                let branch = branch
                    .map(|(cross, attend)| (cross, self.cross_norm(cross, x.clone()), attend));
                let mut x = self.added(x, |residual| attend(normed, residual));
                if let Some((cross, normed, attend)) = branch {
                    x = self.added(x, |residual| attend(cross, normed, residual));
                }
                self.feed(fed, x, context)
            }
        }
    }

    /// Returns the residual stream after the cross-attention sublayer; `x` if there is none.
    fn crossed(
        &self,
        x: Tensor<B, 3>,
        attend: Option<&CrossAttend<'_, B>>,
        sublayer: impl FnOnce(&CrossSublayer<B>, Tensor<B, 3>, &CrossAttend<'_, B>) -> Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        match (&self.cross, attend) {
            (Some(cross), Some(attend)) => sublayer(cross, x, attend),
            (None, _) | (_, None) => x,
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
        self.attention.check(&mask, false)?;
        Ok(self.run_attention_weights(x, rotary, mask))
    }

    /// [`Block::attention_weights`] with a mask that has been checked.
    pub(crate) fn run_attention_weights(
        &self,
        x: Tensor<B, 3>,
        rotary: Option<&RotaryTable<B>>,
        mask: AttentionMask<B>,
    ) -> Tensor<B, 4> {
        let x = match self.wiring {
            Wiring::PreNorm | Wiring::Sandwich | Wiring::Parallel { .. } => self.first_norm(x),
            Wiring::PostNorm | Wiring::OutputNorm => x,
        };
        self.attention.run_weights(x, rotary, mask)
    }

    /// Adds the feed-forward layer's output for `x` to `residual`.
    fn feed(
        &self,
        x: Tensor<B, 3>,
        residual: Tensor<B, 3>,
        context: FeedForwardContext<'_, B>,
    ) -> Tensor<B, 3> {
        self.added(residual, |residual| {
            self.feed_forward.run(x, residual, context)
        })
    }

    /// Adds a sublayer's output to the residual stream. Without dropout or a factor in between, the sublayer's last
    /// matrix product accumulates into the residual stream.
    fn added(
        &self,
        residual: Tensor<B, 3>,
        sublayer: impl FnOnce(Option<Tensor<B, 3>>) -> Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        if self.residual_dropout == 0.0 && self.residual_scale.is_none() {
            return sublayer(Some(residual));
        }
        residual + self.scaled(dropout(sublayer(None), self.residual_dropout))
    }

    /// Adds a sublayer's output to the residual stream after `norm`, if any.
    fn added_normed(
        &self,
        residual: Tensor<B, 3>,
        norm: Option<&Norm<B>>,
        output: Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        let output = match norm {
            Some(norm) => norm.forward(output),
            None => output,
        };
        residual + self.scaled(dropout(output, self.residual_dropout))
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
