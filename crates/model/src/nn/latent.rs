//! The projections of latent attention.

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend as BurnBackend;

use emberlm_kernels::{Backend, Precision, ops};

use crate::config;
use crate::nn::adapter_rows::AdapterRows;
use crate::nn::heads::{HeadSizes, rotated, take_heads};
use crate::nn::init::{Initializer, OutputRole};
use crate::nn::linear::{Linear, LinearConfig, LinearWeight};
use crate::nn::norm::{Norm, NormConfig};

/// Settings of latent attention that other attentions lack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatentConfig {
    /// Width of the latents that keys and values are computed from.
    pub rank: usize,
    /// Width of the latents that queries are computed from, if any.
    pub query_rank: Option<usize>,
    /// The last elements of a head of queries or keys, which are rotated.
    pub rope_dim: usize,
    /// Width of a head of values.
    pub value_dim: usize,
}

/// ε of the norms of latents, whatever that of the model's norms, as in `transformers`.
const EPSILON: f64 = 1e-6;

impl LatentConfig {
    /// Outputs of the projection of the attention's input: queries or their latents, the latents of keys and values, and the
    /// rotated part of the keys.
    pub(crate) fn projected(&self, sizes: HeadSizes) -> usize {
        self.query_width(sizes) + self.row()
    }

    /// Elements that a cache has for each token.
    pub(crate) const fn row(&self) -> usize {
        self.rank + self.rope_dim
    }

    /// Widths of the parts of the projection: queries or their latents, and the row of a cache.
    pub(crate) fn widths(&self, sizes: HeadSizes) -> [usize; 2] {
        [self.query_width(sizes), self.row()]
    }

    fn query_width(&self, sizes: HeadSizes) -> usize {
        self.query_rank.unwrap_or(sizes.heads * sizes.key_dim)
    }

    /// The projection of the queries' latents to the queries, if there are such latents.
    pub(crate) fn q_up(&self, sizes: HeadSizes) -> Option<LinearConfig> {
        let rank = self.query_rank?;
        Some(LinearConfig::new(rank, sizes.heads * sizes.key_dim))
    }

    /// The projection of the latents to keys and values.
    pub(crate) fn up(&self, sizes: HeadSizes) -> LinearConfig {
        let head = sizes.key_dim - self.rope_dim + self.value_dim;
        LinearConfig::new(self.rank, sizes.heads * head)
    }

    fn norm(width: usize) -> NormConfig {
        NormConfig::new(config::Norm::Rms { epsilon: EPSILON }, width)
    }

    /// Number of parameters without the projections of all attentions.
    pub(crate) fn parameters(&self, sizes: HeadSizes) -> u128 {
        let queries = self
            .query_rank
            .map_or(0, |rank| Self::norm(rank).parameters());
        let q_up = self.q_up(sizes).map_or(0, |q_up| q_up.parameters());
        queries + q_up + Self::norm(self.rank).parameters() + self.up(sizes).parameters()
    }

    pub(crate) fn init_from<B: Backend>(
        self,
        sizes: HeadSizes,
        from: &Initializer<'_, B>,
        path: &str,
    ) -> LatentProjections<B> {
        let linear = |config: LinearConfig, name: &str| {
            config.init_from(from, &format!("{path}.{name}"), OutputRole::Hidden)
        };
        LatentProjections {
            q_norm: self
                .query_rank
                .map(|rank| Self::norm(rank).init(from.device())),
            q_up: self.q_up(sizes).map(|q_up| linear(q_up, "q_up")),
            norm: Self::norm(self.rank).init(from.device()),
            up: linear(self.up(sizes), "up"),
            config: self,
            heads: sizes.heads,
            head_dim: sizes.key_dim,
        }
    }
}

/// Computes queries, keys and values from latents (DeepSeek-AI 2024, [2405.04434](https://arxiv.org/abs/2405.04434)).
///
/// ```text
/// c_q, c, r = x W                            one projection, that of the attention
/// q = rope(W_q · rms(c_q))                   or q = rope(c_q); only the last elements of a head are rotated
/// k, v = W_up · rms(c)                       head by head; k = [k, rope(r)] with the same r in all heads
/// ```
///
/// A cache holds `rms(c)` and `rope(r)`. For few new tokens, the attention works on these: `q · k` is `[q W_k, q_r] · [c, r]`,
/// where `W_k` are the columns of a head's keys in `W_up`, and likewise for the values. Then no key is computed again.
#[derive(Module, Debug)]
pub struct LatentProjections<B: BurnBackend> {
    /// Norm of the queries' latents, if there are such.
    pub q_norm: Option<Norm<B>>,
    /// Projection `[query_rank, heads · head_dim]`.
    pub q_up: Option<Linear<B>>,
    /// Norm of the latents of keys and values.
    pub norm: Norm<B>,
    /// Projection `[rank, heads · (head_dim - rope_dim + value_dim)]`: a head's keys, then its values. It is never packed.
    pub up: Linear<B>,
    #[module(skip)]
    config: LatentConfig,
    #[module(skip)]
    heads: usize,
    #[module(skip)]
    head_dim: usize,
}

/// Latents `[batch, tokens, rank]` and parts of keys `[batch, 1, tokens, rope_dim]`.
pub(crate) struct Latents<B: Backend> {
    pub(crate) latents: Tensor<B, 3>,
    pub(crate) keys: Tensor<B, 4>,
}

impl<B: Backend> LatentProjections<B> {
    /// Widths of the parts of the attention's projection.
    pub(crate) fn widths(&self) -> Vec<usize> {
        let queries = self.config.query_rank.unwrap_or(self.heads * self.head_dim);
        vec![queries, self.config.row()]
    }

    pub(crate) fn set_precision(&mut self, precision: Precision) {
        self.up.precision = precision;
    }

    /// The queries in rows of the projection, before the rotation: `[batch, heads, seq, head_dim]`.
    pub(crate) fn queries(
        &self,
        projected: &Tensor<B, 3>,
        adapters: Option<&AdapterRows>,
    ) -> Tensor<B, 4> {
        let width = projected.dims()[2] - self.config.row();
        let mut queries = projected.clone().narrow(2, 0, width);
        if let Some(norm) = &self.q_norm {
            queries = norm.forward(queries);
        }
        if let Some(up) = &self.q_up {
            queries = up.run(queries, None, adapters);
        }
        take_heads(&queries, 0..self.heads, self.head_dim)
    }

    /// The latents of keys and values in rows of the projection, before the rotation.
    pub(crate) fn latents(&self, projected: &Tensor<B, 3>) -> Latents<B> {
        let LatentConfig { rank, rope_dim, .. } = self.config;
        let first = projected.dims()[2] - self.config.row();
        let latents = projected.clone().narrow(2, first, rank);
        let keys = projected.clone().narrow(2, first + rank, rope_dim);
        Latents {
            latents: self.norm.forward(latents),
            keys: keys.unsqueeze_dim(1),
        }
    }

    /// Rotates the last elements of heads `[batch, heads, seq, head_dim]`.
    pub(crate) fn rotated(&self, x: Tensor<B, 4>, angles: &ops::Angles<B>) -> Tensor<B, 4> {
        let rope_dim = self.config.rope_dim;
        let rest = x.dims()[3] - rope_dim;
        let rotated = rotated(x.clone().narrow(3, rest, rope_dim), angles);
        Tensor::cat(vec![x.narrow(3, 0, rest), rotated], 3)
    }

    /// Keys `[batch, heads, tokens, head_dim]` and values `[batch, heads, tokens, value_dim]`.
    pub(crate) fn expanded(&self, of: Latents<B>) -> [Tensor<B, 4>; 2] {
        let LatentConfig {
            rope_dim,
            value_dim,
            ..
        } = self.config;
        let own = self.head_dim - rope_dim;
        let projected = self.up.forward(of.latents, None);
        let [batch, tokens, _] = projected.dims();
        let both = take_heads(&projected, 0..self.heads, own + value_dim);
        let shared = of.keys.expand([batch, self.heads, tokens, rope_dim]);
        let keys = Tensor::cat(vec![both.clone().narrow(3, 0, own), shared], 3);
        [keys, both.narrow(3, own, value_dim)]
    }

    /// Rows of a cache `[batch, 1, tokens, rank + rope_dim]`.
    pub(crate) fn rows(of: Latents<B>) -> Tensor<B, 4> {
        Tensor::cat(vec![of.latents.unsqueeze_dim(1), of.keys], 3)
    }

    /// The inverse of [`LatentProjections::rows`].
    pub(crate) fn of_rows(&self, rows: Tensor<B, 4>) -> Latents<B> {
        let LatentConfig { rank, rope_dim, .. } = self.config;
        let [batch, _, tokens, _] = rows.dims();
        let latents = rows.clone().narrow(3, 0, rank);
        Latents {
            latents: latents.reshape([batch, tokens, rank]),
            keys: rows.narrow(3, rank, rope_dim),
        }
    }

    /// True if attention on the rows of a cache takes fewer multiplications for `new` of `tokens` tokens than with the keys and
    /// values of all of them.
    pub(crate) fn absorbs(&self, new: usize, tokens: usize) -> bool {
        let LatentConfig {
            rank, value_dim, ..
        } = self.config;
        let outputs = self.head_dim - self.config.rope_dim + value_dim;
        let expanded = tokens * rank * outputs + new * tokens * (self.head_dim + value_dim);
        let absorbed = new * rank * outputs + new * tokens * 2 * self.config.row();
        absorbed < expanded
    }

    /// Queries `[batch, heads, seq, head_dim]` for the rows of a cache, `[batch, heads, seq, rank + rope_dim]`.
    pub(crate) fn absorbed(&self, queries: Tensor<B, 4>) -> Tensor<B, 4> {
        let rope_dim = self.config.rope_dim;
        let own = self.head_dim - rope_dim;
        let [keys, _] = self.of_heads(); // [1, heads, rank, own]
        let latent = queries
            .clone()
            .narrow(3, 0, own)
            .matmul(keys.swap_dims(2, 3));
        Tensor::cat(vec![latent, queries.narrow(3, own, rope_dim)], 3)
    }

    /// The values `[batch, heads, seq, value_dim]` of weighted sums of the rows of a cache.
    pub(crate) fn values(&self, sums: Tensor<B, 4>) -> Tensor<B, 4> {
        let [_, values] = self.of_heads(); // [1, heads, rank, value_dim]
        sums.narrow(3, 0, self.config.rank).matmul(values)
    }

    /// The columns of `up` of each head's keys and values, `[1, heads, rank, width]`.
    fn of_heads(&self) -> [Tensor<B, 4>; 2] {
        let LatentConfig {
            rank,
            rope_dim,
            value_dim,
            ..
        } = self.config;
        let own = self.head_dim - rope_dim;
        let weight = match &self.up.weight {
            LinearWeight::Float(weight) => weight.val(),
            LinearWeight::Packed(rows) => Tensor::cat(rows.values(), 0).transpose(),
        };
        let weight = weight.reshape([1, rank, self.heads, own + value_dim]);
        let weight = weight.swap_dims(1, 2);
        [
            weight.clone().narrow(3, 0, own),
            weight.narrow(3, own, value_dim),
        ]
    }
}
