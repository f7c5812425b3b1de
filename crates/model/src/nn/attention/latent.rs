//! Attention with keys and values from latents.

use burn::tensor::Tensor;

use emberlm_kernels::{AttentionMask, AttentionOptions, Backend, ops};

use super::Attention;
use crate::nn::heads::{merge_heads, rotated};
use crate::nn::kv_cache::cached_attention;
use crate::nn::latent::LatentProjections;
use crate::nn::packed::Span;
use crate::nn::position::RotaryTable;

impl<B: Backend> Attention<B> {
    /// The heads' outputs `[count, len, heads · value_dim]` for the rows of a span, which continue its cache, if any. `q` are the
    /// queries of the span and `projected` its rows of the projection.
    pub(super) fn mixed_latents(
        &self,
        latent: &LatentProjections<B>,
        q: Tensor<B, 4>,
        projected: &Tensor<B, 3>,
        span: &mut Span<'_, B>,
        rotary: Option<&RotaryTable<B>>,
    ) -> Tensor<B, 3> {
        let mut new = latent.latents(projected);
        let mut q = q;
        if let Some(angles) = span.angles(rotary) {
            q = latent.rotated(q, &angles);
            new.keys = rotated(new.keys, &angles);
        }
        let mask = self.biased(span.mask.clone(), span.past(), span.rows.len);
        let Some(cache) = span.cache.as_deref_mut() else {
            let [k, v] = latent.expanded(new);
            return merge_heads(padded_attention(q, k, v, mask, self.options));
        };
        let mask = cache.mask(mask);
        let seq = q.dims()[2];
        let rows = cache.append_rows(LatentProjections::rows(new));
        merge_heads(match latent.absorbs(seq, rows.len()) {
            true => {
                let q = latent.absorbed(q);
                let sums = cached_attention(q, rows.clone(), rows, mask, self.options);
                latent.values(sums)
            }
            false => {
                let [k, v] = latent.expanded(latent.of_rows(rows.floats()));
                padded_attention(q, k, v, mask, self.options)
            }
        })
    }

    /// Queries, keys and values of a batch without a cache, before the rotation.
    pub(super) fn latent_heads(
        latent: &LatentProjections<B>,
        projected: &Tensor<B, 3>,
    ) -> [Tensor<B, 4>; 3] {
        let q = latent.queries(projected, None);
        let [k, v] = latent.expanded(latent.latents(projected));
        [q, k, v]
    }
}

/// Attention whose keys and values may differ in width.
fn padded_attention<B: Backend>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    v: Tensor<B, 4>,
    mask: AttentionMask<B>,
    options: AttentionOptions,
) -> Tensor<B, 4> {
    let value_dim = v.dims()[3];
    let width = value_dim.max(q.dims()[3]);
    let [q, k, v] = [q, k, v].map(|x| match width - x.dims()[3] {
        0 => x,
        missing => x.pad((0, missing, 0, 0), 0.0),
    });
    let mixed = ops::attention(q, k, v, mask, options);
    mixed.narrow(3, 0, value_dim)
}
