//! Causal self-attention with grouped key-value heads.

use burn::module::Module;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Int, Tensor};

use emberlm_kernels::{
    AttentionMask, AttentionOptions, Backend, Precision, Reach, SelfAttention, ops,
};

use crate::checked::DecoderConfig;
use crate::config::DropoutSite;
use crate::features::FeatureTable;
use crate::init::{Initializer, MapInto};
use crate::kv_cache::LayerCache;
use crate::linear::Linear;
use crate::norm::NormLayer;
use crate::position::RotaryTable;
use crate::ragged::Piece;

/// `out(softmax(q kᵀ / √head_dim) v)`, or linear attention's estimate of it, with queries, keys and values of one
/// fused map.
#[derive(Module, Debug)]
pub struct Attention<B: BurnBackend> {
    /// `[d_model, (heads + 2 · kv_heads) · head_dim]`: queries, then keys, then values, head by head.
    pub qkv: Linear<B>,
    /// `[heads · head_dim, d_model]`.
    pub out: Linear<B>,
    /// Over a query's head, before it is turned.
    pub q_norm: Option<NormLayer<B>>,
    /// Over a key's head, before it is turned.
    pub k_norm: Option<NormLayer<B>>,
    /// Linear attention's; none with a softmax.
    features: Option<FeatureTable<B>>,
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
    pub(crate) fn init(from: &Initializer<'_, B>, layer: usize, config: &DecoderConfig) -> Self {
        let path = format!("blocks.{layer}.attention");
        let (heads, kv_heads, head_dim) = (config.heads, config.kv_heads, config.head_dim);
        let qkv_shape = [config.d_model, (heads + 2 * kv_heads) * head_dim];
        let out_shape = [heads * head_dim, config.d_model];
        let head_norm = || {
            config
                .qk_norm
                .then(|| NormLayer::init(from, config.norm, head_dim))
        };
        Self {
            qkv: Linear::init(
                from,
                &format!("{path}.qkv"),
                qkv_shape,
                config.bias.qkv,
                MapInto::Hidden,
            ),
            out: Linear::init(
                from,
                &format!("{path}.out"),
                out_shape,
                config.bias.attention_out,
                MapInto::Residual,
            ),
            q_norm: head_norm(),
            k_norm: head_norm(),
            features: FeatureTable::init(config, layer, from.device()),
            heads,
            kv_heads,
            head_dim,
            options: AttentionOptions {
                reach: match config.window_of(layer) {
                    Some(tokens) => Reach::Window {
                        tokens,
                        global_tokens: config.global_tokens,
                    },
                    None => Reach::Causal,
                },
                scale: 1.0 / (head_dim as f64).sqrt(),
                soft_cap: None,
                dropout: config.dropout_at(DropoutSite::Attention),
                precision: Precision::default(),
            },
        }
    }

    /// `[batch, seq, d_model]` to the same, added to `residual` where there is one. `documents` `[batch, seq]` are those of
    /// [`crate::Tokens`], for a softmax alone. With a cache, `x` continues what it holds; keys and values are added to it.
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        rotary: Option<&RotaryTable<B>>,
        documents: Option<&Tensor<B, 2, Int>>,
        cache: Option<&mut LayerCache<B>>,
        residual: Option<Tensor<B, 3>>,
    ) -> Tensor<B, 3> {
        let [batch, seq, _] = x.dims();
        let is_plain = self.features.is_none() && self.q_norm.is_none() && self.k_norm.is_none();
        let mixed = if is_plain && cache.is_none() {
            let angles = rotary.map(|table| table.angles(0, seq));
            let qkv = self.qkv.forward(x, None);
            let mask = AttentionMask::of_documents(documents.cloned());
            ops::self_attention(qkv, angles, mask, self.how())
        } else {
            let offset = cache.as_ref().map_or(0, |cache| cache.len());
            let angles = rotary.map(|table| table.angles(offset, seq));
            let (q, k, v) = self.project(x, angles.as_ref());
            let mixed = self.mix(q, k, v, documents, cache); // [batch, heads, seq, head_dim]
            mixed
                .swap_dims(1, 2)
                .reshape([batch, seq, self.heads * self.head_dim])
        };
        self.out.forward(mixed, residual)
    }

    /// The rows of several sequences, `[1, rows, d_model]`, to the same, added to `residual` where there is one: the maps
    /// take all rows at once, and each of `pieces` attends, in block `layer` of its own cache, to its own sequence.
    /// `angles` are the rows'.
    pub(crate) fn ragged(
        &self,
        x: Tensor<B, 3>,
        angles: Option<&ops::Angles<B>>,
        layer: usize,
        pieces: &mut [Piece<'_, B>],
        residual: Option<Tensor<B, 3>>,
    ) -> Tensor<B, 3> {
        let width = self.heads * self.head_dim;
        let (q, k, v) = self.project(x, angles);
        let mut first = 0;
        let of_any = pieces.iter_mut().filter(|piece| !piece.tokens.is_empty());
        let mixed = of_any.map(|piece| {
            let seq = piece.tokens.len();
            let rows = |of: &Tensor<B, 4>| of.clone().narrow(2, first, seq);
            let (q, k, v) = (rows(&q), rows(&k), rows(&v));
            first += seq;
            let mixed = self.mix(q, k, v, None, piece.cache.layer(layer)); // [1, heads, seq, head_dim]
            mixed.swap_dims(1, 2).reshape([1, seq, width])
        });
        let mut mixed: Vec<Tensor<B, 3>> = mixed.collect();
        let mixed = match (mixed.len(), mixed.pop()) {
            (1, Some(alone)) => alone,
            (_, last) => {
                mixed.extend(last);
                Tensor::cat(mixed, 1)
            }
        }; // [1, rows, heads · head_dim]
        self.out.forward(mixed, residual)
    }

    /// In what precision its products are made, beside those of its maps.
    pub(crate) fn set_precision(&mut self, precision: Precision) {
        self.options.precision = precision;
    }

    /// The widths of queries, keys and values in the output of `qkv`.
    pub(crate) fn qkv_widths(&self) -> [usize; 3] {
        [self.heads, self.kv_heads, self.kv_heads].map(|heads| heads * self.head_dim)
    }

    fn how(&self) -> SelfAttention {
        SelfAttention {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            options: self.options,
        }
    }

    /// The weights that [`Attention::forward`] without a cache gives the values, `[batch, heads, seq, seq]`.
    pub fn weights(&self, x: Tensor<B, 3>, rotary: Option<&RotaryTable<B>>) -> Tensor<B, 4> {
        let angles = rotary.map(|table| table.angles(0, x.dims()[1]));
        let (q, k, _) = self.project(x, angles.as_ref());
        match &self.features {
            Some(features) => ops::linear_attention_weights(q, k, features.rows()),
            None => ops::attention_weights(q, k, AttentionMask::default(), self.options),
        }
    }

    /// Queries `[batch, heads, seq, head_dim]`, keys and values `[batch, kv_heads, seq, head_dim]`, turned by the tokens'
    /// `angles`.
    fn project(
        &self,
        x: Tensor<B, 3>,
        angles: Option<&ops::Angles<B>>,
    ) -> (Tensor<B, 4>, Tensor<B, 4>, Tensor<B, 4>) {
        let qkv = self.qkv.forward(x, None);
        let q = self.take_heads(&qkv, 0, self.heads);
        let k = self.take_heads(&qkv, self.heads, self.kv_heads);
        let v = self.take_heads(&qkv, self.heads + self.kv_heads, self.kv_heads);

        let q = normed(&self.q_norm, q);
        let k = normed(&self.k_norm, k);
        match angles {
            Some(angles) => (turned(q, angles), turned(k, angles), v),
            None => (q, k, v),
        }
    }

    /// The values as each query weighs them, the cache's before these.
    fn mix(
        &self,
        q: Tensor<B, 4>,
        k: Tensor<B, 4>,
        v: Tensor<B, 4>,
        documents: Option<&Tensor<B, 2, Int>>,
        cache: Option<&mut LayerCache<B>>,
    ) -> Tensor<B, 4> {
        debug_assert!(
            self.features.is_none() || documents.is_none(),
            "DecoderConfig::check_documents refuses linear attention"
        );
        match (&self.features, cache) {
            (None, cache) => {
                let (k, v) = match cache {
                    Some(cache) => cache.append(k, v),
                    None => (k, v),
                };
                let mask = AttentionMask::of_documents(documents.cloned());
                ops::attention(q, k, v, mask, self.options)
            }
            (Some(features), None) => ops::linear_attention(q, k, v, features.rows(), None).0,
            (Some(features), Some(cache)) => {
                let seq = q.dims()[2];
                let past = cache.take_sums();
                let (mixed, sums) = ops::linear_attention(q, k, v, features.rows(), past);
                cache.put_sums(sums, seq);
                mixed
            }
        }
    }

    /// `count` heads from head `first` on: `[batch, seq, all]` to `[batch, count, seq, head_dim]`.
    fn take_heads(&self, qkv: &Tensor<B, 3>, first: usize, count: usize) -> Tensor<B, 4> {
        let [batch, seq, _] = qkv.dims();
        qkv.clone()
            .narrow(2, first * self.head_dim, count * self.head_dim)
            .reshape([batch, seq, count, self.head_dim])
            .swap_dims(1, 2)
    }
}

/// `x` `[batch, heads, seq, head_dim]` turned by the angles of its tokens.
fn turned<B: Backend>(x: Tensor<B, 4>, angles: &ops::Angles<B>) -> Tensor<B, 4> {
    let (cos, sin) = (angles.cos.clone(), angles.sin.clone());
    ops::rotary(angles.layout, x, cos, sin)
}

fn normed<B: Backend>(norm: &Option<NormLayer<B>>, x: Tensor<B, 4>) -> Tensor<B, 4> {
    match norm {
        Some(norm) => norm.forward(x),
        None => x,
    }
}
