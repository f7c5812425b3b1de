//! Cross-attention: queries from one sequence, keys and values from another (Vaswani et al. 2017, section 3.2.3).

use burn::module::Module;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Int, Tensor};

use emberlm_kernels::{AttentionMask, AttentionOptions, Backend, Precision, Reach, ops};

use crate::config;
use crate::nn::attention::default_scale;
use crate::nn::heads::{merge_heads, normed, take_heads, weighted_sums};
use crate::nn::init::{Initializer, OutputRole};
use crate::nn::linear::{Linear, LinearConfig};
use crate::nn::norm::{Norm, NormConfig};
use crate::nn::packed::{RowSpan, Span};
use crate::nn::probe::{LayerProbe, Point};

/// Configuration of a [`CrossAttention`].
///
/// It is separate from [`crate::nn::AttentionConfig`] because cross-attention has no causal order, no rotary positions
/// and no growing cache, and always has a memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossAttentionConfig {
    /// Width of the input and the output.
    pub d_model: usize,
    /// Width of the memory, i.e. the sequence attended to.
    pub d_memory: usize,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads; their number divides the number of query heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// True if the projection to queries has a bias.
    pub q_bias: bool,
    /// True if the projection to keys and values has a bias.
    pub kv_bias: bool,
    /// True if the output projection has a bias.
    pub out_bias: bool,
    /// Normalization of each head's queries and keys, if any.
    pub qk_norm: Option<config::Norm>,
    /// Factor on the scores.
    pub scale: f64,
    /// Bounds scores to ±cap by `cap · tanh(score / cap)`.
    pub soft_cap: Option<f64>,
    /// Probability of dropping an attention weight during training.
    pub dropout: f64,
}

impl CrossAttentionConfig {
    /// `heads` heads, each `d_model / heads` wide, over a memory of the same width, without biases or dropout.
    pub fn new(d_model: usize, heads: usize) -> Self {
        let head_dim = d_model / heads.max(1);
        Self {
            d_model,
            d_memory: d_model,
            heads,
            kv_heads: heads,
            head_dim,
            q_bias: false,
            kv_bias: false,
            out_bias: false,
            qk_norm: None,
            scale: default_scale(head_dim),
            soft_cap: None,
            dropout: 0.0,
        }
    }

    /// The projection to queries, the fused projection to keys and values, and the output projection.
    pub(crate) fn linear_layers(&self) -> [LinearConfig; 3] {
        let q_width = self.heads * self.head_dim;
        let kv_width = 2 * self.kv_heads * self.head_dim;
        [
            LinearConfig::new(self.d_model, q_width).with_bias(self.q_bias),
            LinearConfig::new(self.d_memory, kv_width).with_bias(self.kv_bias),
            LinearConfig::new(q_width, self.d_model).with_bias(self.out_bias),
        ]
    }

    /// The norms of a head's queries and of its keys.
    pub(crate) fn head_norm(&self) -> Option<NormConfig> {
        Some(NormConfig::new(self.qk_norm?, self.head_dim))
    }

    /// Builds a cross-attention with the initial weights of [`LinearConfig::init`].
    pub fn init<B: Backend>(&self, device: &Device<B>) -> CrossAttention<B> {
        self.init_from(&Initializer::standalone(self.d_model, device), "")
    }

    pub(crate) fn init_from<B: Backend>(
        &self,
        from: &Initializer<'_, B>,
        path: &str,
    ) -> CrossAttention<B> {
        let layer = |config: LinearConfig, name: &str, into| {
            config.init_from(from, &format!("{path}.{name}"), into)
        };
        let [q, kv, out] = self.linear_layers();
        let norm = || self.head_norm().map(|norm| norm.init(from.device()));
        CrossAttention {
            q: layer(q, "q", OutputRole::Hidden),
            kv: layer(kv, "kv", OutputRole::Hidden),
            out: layer(out, "out", OutputRole::Residual),
            q_norm: norm(),
            k_norm: norm(),
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            options: AttentionOptions {
                reach: Reach::Full,
                scale: self.scale,
                soft_cap: self.soft_cap,
                dropout: self.dropout,
                precision: Precision::default(),
            },
        }
    }
}

/// Computes `out(softmax(scale · q kᵀ + bias + mask) v)` with `q` from the input, and `k` and `v` from the memory.
///
/// ```
/// use burn::tensor::{Distribution, Tensor};
/// use burn_flex::Flex;
/// use emberlm_model::nn::{AttentionMask, CrossAttentionConfig};
///
/// let device = Default::default();
/// let attention = CrossAttentionConfig::new(16, 4).init::<Flex>(&device);
/// let encoded = Tensor::random([2, 7, 16], Distribution::Default, &device);
/// let memory = attention.project_memory(encoded);
/// let x = Tensor::random([2, 3, 16], Distribution::Default, &device);
/// let y = attention.forward(x, &memory, AttentionMask::default(), None);
/// assert_eq!(y.dims(), [2, 3, 16]);
/// ```
#[derive(Module, Debug)]
pub struct CrossAttention<B: BurnBackend> {
    /// Projection to queries, `[d_model, heads · head_dim]`.
    pub q: Linear<B>,
    /// Projection to keys, then values, `[d_memory, 2 · kv_heads · head_dim]`.
    pub kv: Linear<B>,
    /// Output projection, `[heads · head_dim, d_model]`.
    pub out: Linear<B>,
    /// Norm of each query head.
    pub q_norm: Option<Norm<B>>,
    /// Norm of each key head.
    pub k_norm: Option<Norm<B>>,
    #[module(skip)]
    heads: usize,
    #[module(skip)]
    kv_heads: usize,
    #[module(skip)]
    head_dim: usize,
    #[module(skip)]
    options: AttentionOptions,
}

/// Keys and values of a memory, `[batch, kv_heads, memory, head_dim]` each. They do not depend on the queries, so they
/// are computed once per memory.
#[derive(Clone, Debug)]
pub struct MemoryHeads<B: BurnBackend> {
    keys: Tensor<B, 4>,
    values: Tensor<B, 4>,
}

impl<B: Backend> MemoryHeads<B> {
    /// Those of the batch's sequences with the given numbers, `[selected]`.
    pub(crate) fn select(&self, rows: &Tensor<B, 1, Int>) -> Self {
        Self {
            keys: self.keys.clone().select(0, rows.clone()),
            values: self.values.clone().select(0, rows.clone()),
        }
    }
}

impl<B: Backend> CrossAttention<B> {
    /// Computes the keys and values of a memory `[batch, memory, d_memory]`.
    pub fn project_memory(&self, memory: Tensor<B, 3>) -> MemoryHeads<B> {
        let (kv_heads, head_dim) = (self.kv_heads, self.head_dim);
        let projected = self.kv.forward(memory, None);
        let keys = take_heads(&projected, 0..kv_heads, head_dim);
        MemoryHeads {
            keys: normed(&self.k_norm, keys),
            values: take_heads(&projected, kv_heads..2 * kv_heads, head_dim),
        }
    }

    /// Maps `[batch, seq, d_model]` to the same shape and adds `residual` if given. In `mask`, the padding is that of
    /// the memory, `[batch, memory]`, and the bias is `[heads, seq, memory]`.
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        memory: &MemoryHeads<B>,
        mask: AttentionMask<B>,
        residual: Option<Tensor<B, 3>>,
    ) -> Tensor<B, 3> {
        let queries = self.queries(x);
        let mixed = self.mix(queries, memory, mask);
        self.out.forward(mixed, residual)
    }

    /// [`CrossAttention::forward`] of the rows of several sequences, which attend to the memories of their spans.
    pub(crate) fn run_rows(
        &self,
        x: Tensor<B, 3>,
        residual: Option<Tensor<B, 3>>,
        spans: &[Span<'_, B>],
        probe: &mut Option<LayerProbe<'_, B>>,
    ) -> Tensor<B, 3> {
        let [batch, seq, _] = x.dims();
        let queries = self.queries(x);
        let mixed = spans.iter().filter_map(|span| {
            let memory = span.memory.as_ref()?;
            let (queries, mask) = (span.rows.of_heads(&queries), memory.mask());
            let Some(probe) = probe else {
                return Some(self.mix(queries, memory.heads, mask));
            };
            let MemoryHeads { keys, values } = memory.heads.clone();
            let weights = ops::attention_weights(queries, keys, mask, self.options);
            let weights = probe.heads(Point::CrossPattern, weights);
            Some(merge_heads(weighted_sums(weights, values)))
        });
        let mixed = RowSpan::joined(mixed, [batch, seq]);
        self.out.forward(mixed, residual)
    }

    /// The weighted sums of the values, `[batch, seq, heads · head_dim]`.
    fn mix(
        &self,
        queries: Tensor<B, 4>,
        memory: &MemoryHeads<B>,
        mask: AttentionMask<B>,
    ) -> Tensor<B, 3> {
        let (keys, values) = (memory.keys.clone(), memory.values.clone());
        merge_heads(ops::attention(queries, keys, values, mask, self.options))
    }

    /// Computes the weights that [`CrossAttention::forward`] applies to the values: `[batch, heads, seq, memory]`.
    pub fn weights(
        &self,
        x: Tensor<B, 3>,
        memory: &MemoryHeads<B>,
        mask: AttentionMask<B>,
    ) -> Tensor<B, 4> {
        ops::attention_weights(self.queries(x), memory.keys.clone(), mask, self.options)
    }

    /// Sets the precision of the attention's matrix products, except those of its linear layers.
    pub(crate) fn set_precision(&mut self, precision: Precision) {
        self.options.precision = precision;
    }

    /// The widths of keys and values in the output of `kv`.
    pub(crate) fn kv_widths(&self) -> [usize; 2] {
        [self.kv_heads * self.head_dim; 2]
    }

    /// Computes the queries `[batch, heads, seq, head_dim]`.
    fn queries(&self, x: Tensor<B, 3>) -> Tensor<B, 4> {
        let projected = self.q.forward(x, None);
        normed(
            &self.q_norm,
            take_heads(&projected, 0..self.heads, self.head_dim),
        )
    }
}
