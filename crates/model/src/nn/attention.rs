//! Self-attention with grouped key-value heads. Cross-attention, whose queries and keys come from different sequences,
//! is in `cross_attention`.

mod config;
mod latent;
mod recurrent;
mod weights;

pub(crate) use config::default_scale;
pub use config::{AttentionConfig, Mechanism};

use std::slice;

use burn::module::{Module, Param};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Int, Tensor, activation};

use emberlm_kernels::{
    AttentionMask, AttentionOptions, Backend, Precision, Reach, SelfAttention, ops,
};

use crate::config::QkNormSpan;
use crate::error::ContextError;
use crate::nn::adapter_rows::AdapterRows;
use crate::nn::alibi::AlibiSlopes;
use crate::nn::context::{AttentionContext, reject_mask};
use crate::nn::delta_net::DeltaNet;
use crate::nn::features::FeatureTable;
use crate::nn::heads::{merge_heads, normed, rotated, take_heads, weighted_sums};
use crate::nn::kv_cache::{LayerCache, cached_attention};
use crate::nn::latent::LatentProjections;
use crate::nn::linear::Linear;
use crate::nn::norm::Norm;
use crate::nn::packed::{BlockPass, RowSpan, Span};
use crate::nn::position::RotaryTable;
use crate::nn::probe::{LayerProbe, Point};
use crate::nn::value_embedding::ValueEmbedding;

/// Computes `out(softmax(scale · q kᵀ) v)`, linear attention's estimate of it, or a gated delta net ([`DeltaNet`]). One fused
/// linear layer computes queries, keys and values.
///
/// ```
/// use burn::tensor::{Distribution, Tensor};
/// use burn_flex::Flex;
/// use emberlm_model::nn::{AttentionConfig, AttentionContext, Reach};
///
/// let device = Default::default();
/// let reach = Reach::Window { tokens: 2, global_tokens: 0 };
/// let attention = AttentionConfig::new(16, 4).with_reach(reach).init::<Flex>(&device);
/// let x = Tensor::random([2, 3, 16], Distribution::Default, &device);
/// let y = attention.forward(x, AttentionContext::default(), None)?;
/// assert_eq!(y.dims(), [2, 3, 16]);
/// # Ok::<(), emberlm_model::ContextError>(())
/// ```
#[derive(Module, Debug)]
pub struct Attention<B: BurnBackend> {
    /// Projection `[d_model, (heads + 2 · kv_heads) · head_dim]`: queries, then keys, then values, head by head. With latents, see
    /// [`LatentProjections`].
    pub qkv: Linear<B>,
    /// Output projection `[heads · head_dim, d_model]`.
    pub out: Linear<B>,
    /// Projection `[d_model, heads · head_dim]` to the gate of the heads' outputs, if any.
    pub gate: Option<Linear<B>>,
    /// The parameters of a gated delta net.
    pub delta: Option<DeltaNet<B>>,
    /// The projections from latents to queries, keys and values.
    pub latent: Option<LatentProjections<B>>,
    /// Norm of the queries, applied before the rotation.
    pub q_norm: Option<Norm<B>>,
    /// Norm of the keys, applied before the rotation.
    pub k_norm: Option<Norm<B>>,
    /// Vectors of tokens that are added to the values, if any.
    pub values: Option<ValueEmbedding<B>>,
    /// A score of each head that has no key and no value, `[heads]`.
    pub sinks: Option<Param<Tensor<B, 1>>>,
    /// Random features of linear attention; `None` with a softmax.
    features: Option<FeatureTable<B>>,
    /// Slopes of ALiBi's linear biases, if any.
    alibi: Option<AlibiSlopes<B>>,
    #[module(skip)]
    qk_norm_span: QkNormSpan,
    #[module(skip)]
    heads: usize,
    #[module(skip)]
    kv_heads: usize,
    #[module(skip)]
    head_dim: usize,
    #[module(skip)]
    options: AttentionOptions,
}

impl<B: Backend> Attention<B> {
    /// Maps `[batch, seq, d_model]` to the same shape and adds `residual` if given.
    ///
    /// # Errors
    /// The attention does not support the mask; see [`AttentionContext::mask`].
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        context: AttentionContext<'_, B>,
        residual: Option<Tensor<B, 3>>,
    ) -> Result<Tensor<B, 3>, ContextError> {
        self.check(
            &context.mask,
            context.cache.is_some(),
            context.ids.is_some(),
        )?;
        Ok(self.run(x, context, residual))
    }

    /// Returns an error if the attention does not support the mask.
    pub(crate) fn check(
        &self,
        mask: &AttentionMask<B>,
        cached: bool,
        has_ids: bool,
    ) -> Result<(), ContextError> {
        if self.values.is_some() && !has_ids {
            return Err(ContextError::NoTokens);
        }
        match self.is_recurrent() {
            true => reject_mask(mask),
            false if cached && mask.documents.is_some() => Err(ContextError::CachedDocuments),
            false => Ok(()),
        }
    }

    /// [`Attention::forward`] with a context that has been checked.
    pub(crate) fn run(
        &self,
        x: Tensor<B, 3>,
        context: AttentionContext<'_, B>,
        residual: Option<Tensor<B, 3>>,
    ) -> Tensor<B, 3> {
        let AttentionContext {
            rotary,
            mask,
            cache,
            ids,
        } = context;
        let mut span = Span {
            rows: RowSpan::of_batch(&x),
            mask,
            cache,
            memory: None,
        };
        let mut pass = BlockPass {
            ids,
            ..BlockPass::new(rotary)
        };
        self.run_rows(x, residual, slice::from_mut(&mut span), &mut pass)
    }

    /// Maps the rows of several sequences, `[1, rows, d_model]` or a batch, to the same shape and adds `residual` if given.
    /// The linear layers process all rows at once; each sequence attends to its own cache.
    pub(crate) fn run_rows(
        &self,
        x: Tensor<B, 3>,
        residual: Option<Tensor<B, 3>>,
        spans: &mut [Span<'_, B>],
        pass: &mut BlockPass<'_, B>,
    ) -> Tensor<B, 3> {
        let rotary = pass.rotary;
        let [batch, seq, _] = x.dims();
        let gate = self.gate.as_ref();
        let gate = gate.map(|gate| gate.run(x.clone(), None, pass.adapters));
        if let (Some(delta), Some(gate)) = (&self.delta, &gate) {
            let rates = delta.rates(x.clone());
            let qkv = self.qkv.run(x, None, pass.adapters);
            let of = |span: &mut Span<'_, B>| {
                let [qkv, rates, gate] = [&qkv, &rates, gate].map(|rows| span.rows.of(rows));
                let cache = span.cache.as_deref_mut();
                let mixed = recurrent::delta_net(delta, qkv, rates, cache);
                let mixed = match &mut pass.probe {
                    Some(probe) => merge_heads(probe.heads(Point::Mixed, delta.by_head(&mixed))),
                    None => mixed,
                };
                delta.gated(mixed, gate)
            };
            let mixed = RowSpan::joined(spans.iter_mut().map(of), [batch, seq]);
            return self.out.run(mixed, residual, pass.adapters);
        }
        let gated = |mixed: Tensor<B, 3>| match gate {
            Some(gate) => mixed * activation::sigmoid(gate),
            None => mixed,
        };
        let qkv = self.projected(x, pass.ids.as_ref(), pass.adapters);
        if let (Some(probe), [span]) = (&mut pass.probe, &*spans) {
            let mixed = merge_heads(self.probed(&qkv, span, rotary, probe));
            return self.out.run(gated(mixed), residual, pass.adapters);
        }
        if let Some(latent) = &self.latent {
            let q = latent.queries(&qkv, pass.adapters);
            let of = |span: &mut Span<'_, B>| {
                let (q, rows) = (span.rows.of_heads(&q), span.rows.of(&qkv));
                self.mixed_latents(latent, q, &rows, span, rotary)
            };
            let mixed = RowSpan::joined(spans.iter_mut().map(of), [batch, seq]);
            return self.out.run(gated(mixed), residual, pass.adapters);
        }
        let qkv = self.normed_columns(qkv);
        let mixed = match self.fused(&qkv, spans, rotary) {
            Some(mixed) => RowSpan::joined(mixed.into_iter(), [batch, seq]),
            None => {
                let (qkv, angles) = match &*spans {
                    [span] => (span.rows.of(&qkv), span.angles(rotary)),
                    _ => (qkv, pass.angles.clone()),
                };
                let (q, k, v) = self.split(&qkv, angles.as_ref());
                let of = |span: &mut Span<'_, B>| {
                    let [q, k, v] = [&q, &k, &v].map(|heads| span.rows.of_heads(heads));
                    let mask = self.biased(span.mask.clone(), span.past(), span.rows.len);
                    merge_heads(self.mix(q, k, v, mask, span.cache.as_deref_mut()))
                };
                RowSpan::joined(spans.iter_mut().map(of), [batch, seq])
            }
        };
        self.out.run(gated(mixed), residual, pass.adapters)
    }

    /// True if the attention has a state in place of the keys and values of earlier tokens.
    fn is_recurrent(&self) -> bool {
        self.features.is_some() || self.delta.is_some()
    }

    /// Queries, keys and values of rows `[batch, seq, d_model]`.
    fn projected(
        &self,
        x: Tensor<B, 3>,
        ids: Option<&Tensor<B, 2, Int>>,
        adapters: Option<&AdapterRows>,
    ) -> Tensor<B, 3> {
        match (&self.values, ids) {
            (Some(values), Some(ids)) => {
                let qkv = self.qkv.run(x.clone(), None, adapters);
                values.added(qkv, &x, ids.clone())
            }
            _ => self.qkv.run(x, None, adapters),
        }
    }

    /// The attention of each span as one operation on the rows of `qkv`; `None` for linear attention, or if a cache cannot
    /// append keys and values in it.
    fn fused(
        &self,
        qkv: &Tensor<B, 3>,
        spans: &mut [Span<'_, B>],
        rotary: Option<&RotaryTable<B>>,
    ) -> Option<Vec<Tensor<B, 3>>> {
        if self.features.is_some() {
            return None;
        }
        // The angles of several spans are computed once for all blocks.
        if spans.len() > 1 && spans.iter().any(|span| span.cache.is_some()) {
            return None;
        }
        let of = |span: &mut Span<'_, B>| {
            let (qkv, angles) = (span.rows.of(qkv), span.angles(rotary));
            let mask = self.biased(span.mask.clone(), span.past(), span.rows.len);
            let config = self.kernel_config();
            match span.cache.as_deref_mut() {
                Some(cache) => cache.attention(qkv, angles, mask, config),
                None => Some(ops::self_attention(qkv, angles, mask, config)),
            }
        };
        spans.iter_mut().map(of).collect()
    }

    /// The attention of a batch without a cache, step by step: `[batch, heads, seq, head_dim]`.
    fn probed(
        &self,
        qkv: &Tensor<B, 3>,
        span: &Span<'_, B>,
        rotary: Option<&RotaryTable<B>>,
        probe: &mut LayerProbe<'_, B>,
    ) -> Tensor<B, 4> {
        let [q, k, v] = self.heads_of(qkv);
        let q = probe.heads(Point::Queries, q);
        let k = probe.heads(Point::Keys, k);
        let v = probe.heads(Point::Values, v);
        let (mut q, mut k) = (
            self.head_normed(&self.q_norm, q),
            self.head_normed(&self.k_norm, k),
        );
        if let Some(angles) = span.angles(rotary) {
            q = probe.heads(Point::RotatedQueries, self.rotated(q, &angles));
            k = probe.heads(Point::RotatedKeys, self.rotated(k, &angles));
        }
        let mask = self.biased(span.mask.clone(), 0, span.rows.len);
        let weights = self.softmax(q, k, mask);
        let weights = probe.heads(Point::Pattern, weights);
        probe.heads(Point::Mixed, weighted_sums(weights, v))
    }

    /// Sets the precision of the attention's matrix products, except those of its linear layers.
    pub(crate) fn set_precision(&mut self, precision: Precision) {
        self.options.precision = precision;
        if let Some(latent) = &mut self.latent {
            latent.set_precision(precision);
        }
    }

    /// Sets the size of the attention's window, if it has one.
    pub(crate) fn set_window(&mut self, new: usize) {
        if let Reach::Window { tokens, .. } = &mut self.options.reach {
            *tokens = new;
        }
    }

    /// The widths of queries, keys and values in the output of `qkv`; those of its parts with latents.
    pub(crate) fn qkv_widths(&self) -> Vec<usize> {
        match (&self.delta, &self.latent) {
            (Some(delta), _) => delta.widths().to_vec(),
            (_, Some(latent)) => latent.widths(),
            (None, None) => [self.heads, self.kv_heads, self.kv_heads]
                .map(|heads| heads * self.head_dim)
                .to_vec(),
        }
    }

    fn kernel_config(&self) -> SelfAttention {
        SelfAttention {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            options: self.options,
        }
    }

    /// Splits normalized rows of `qkv` into queries `[batch, heads, seq, head_dim]` and keys and values
    /// `[batch, kv_heads, seq, head_dim]`. Queries and keys are rotated by the tokens' `angles`.
    fn split(
        &self,
        qkv: &Tensor<B, 3>,
        angles: Option<&ops::Angles<B>>,
    ) -> (Tensor<B, 4>, Tensor<B, 4>, Tensor<B, 4>) {
        let [q, k, v] = self.heads_of(qkv);
        match angles {
            Some(angles) => (self.rotated(q, angles), self.rotated(k, angles), v),
            None => (q, k, v),
        }
    }

    /// The queries, keys and values in rows of `qkv`, before the rotation.
    fn heads_of(&self, qkv: &Tensor<B, 3>) -> [Tensor<B, 4>; 3] {
        if let Some(latent) = &self.latent {
            return Self::latent_heads(latent, qkv);
        }
        let (heads, kv_heads) = (self.heads, self.kv_heads);
        let sets = [
            0..heads,
            heads..heads + kv_heads,
            heads + kv_heads..heads + 2 * kv_heads,
        ];
        sets.map(|set| take_heads(qkv, set, self.head_dim))
    }

    /// Rotates heads `[batch, heads, seq, head_dim]`, or the last elements of each with latents.
    fn rotated(&self, x: Tensor<B, 4>, angles: &ops::Angles<B>) -> Tensor<B, 4> {
        match &self.latent {
            Some(latent) => latent.rotated(x, angles),
            None => rotated(x, angles),
        }
    }

    /// Normalizes each head of the queries and keys in rows of `qkv`, or all heads of each together.
    fn normed_columns(&self, qkv: Tensor<B, 3>) -> Tensor<B, 3> {
        let (Some(q_norm), Some(k_norm)) = (&self.q_norm, &self.k_norm) else {
            return qkv;
        };
        let heads = [self.heads, self.kv_heads];
        let (counts, widths) = match self.qk_norm_span {
            QkNormSpan::Head => (heads, [self.head_dim; 2]),
            QkNormSpan::Projection => ([1, 1], heads.map(|heads| heads * self.head_dim)),
        };
        Norm::of_columns([q_norm, k_norm], counts, qkv, widths)
    }

    /// Normalizes heads `[batch, heads, seq, head_dim]` as [`Attention::normed_columns`] does.
    fn head_normed(&self, norm: &Option<Norm<B>>, x: Tensor<B, 4>) -> Tensor<B, 4> {
        match (norm, self.qk_norm_span) {
            (Some(norm), QkNormSpan::Projection) => {
                let heads = x.dims()[1];
                take_heads(&norm.forward(merge_heads(x)), 0..heads, self.head_dim)
            }
            (norm, _) => normed(norm, x),
        }
    }

    /// Adds the sinks and the linear biases of `seq` queries from position `offset` to a mask, if the attention has any.
    fn biased(&self, mut mask: AttentionMask<B>, offset: usize, seq: usize) -> AttentionMask<B> {
        if let Some(sinks) = &self.sinks {
            mask.sinks = Some(sinks.val());
        }
        match &self.alibi {
            Some(slopes) => slopes.added(mask, offset, seq),
            None => mask,
        }
    }

    /// Returns the weighted sum of the values for each query; the cache's values precede the new ones.
    fn mix(
        &self,
        q: Tensor<B, 4>,
        k: Tensor<B, 4>,
        v: Tensor<B, 4>,
        mask: AttentionMask<B>,
        cache: Option<&mut LayerCache<B>>,
    ) -> Tensor<B, 4> {
        match (&self.features, cache) {
            (None, None) => ops::attention(q, k, v, mask, self.options),
            (None, Some(cache)) => {
                let mask = cache.mask(mask);
                let (k, v) = cache.append(k, v);
                cached_attention(q, k, v, mask, self.options)
            }
            (Some(features), None) => ops::linear_attention(q, k, v, features.rows(), None).0,
            (Some(features), Some(cache)) => {
                recurrent::linear_attention(q, k, v, features.rows(), cache)
            }
        }
    }
}
