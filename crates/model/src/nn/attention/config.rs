//! Configuration of an attention.

use std::iter;

use burn::tensor::Device;

use emberlm_kernels::{AttentionOptions, Backend, Precision, Reach};

use super::Attention;
use crate::config::{self, QkNormSpan};
use crate::nn::alibi::AlibiSlopes;
use crate::nn::delta_net::DeltaNetConfig;
use crate::nn::features::FeatureTable;
use crate::nn::heads::HeadSizes;
use crate::nn::init::{Initializer, OutputRole};
use crate::nn::latent::LatentConfig;
use crate::nn::linear::LinearConfig;
use crate::nn::norm::NormConfig;
use crate::nn::value_embedding::ValueEmbeddingConfig;

/// Configuration of an [`Attention`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionConfig {
    /// Width of the input and the output.
    pub d_model: usize,
    /// Query heads; heads of values in a delta net.
    pub heads: usize,
    /// Key-value heads; heads of queries and keys in a delta net. Their number divides `heads`.
    pub kv_heads: usize,
    /// Width of a head; in a delta net, of a head of queries and keys.
    pub head_dim: usize,
    /// True if the projection to queries, keys and values has a bias.
    pub qkv_bias: bool,
    /// True if the output projection has a bias.
    pub out_bias: bool,
    /// Normalization of queries and keys, if any.
    pub qk_norm: Option<config::Norm>,
    /// The elements that one norm of queries or keys covers.
    pub qk_norm_span: QkNormSpan,
    /// Vectors of tokens that are added to the values, if any.
    pub values: Option<ValueEmbeddingConfig>,
    /// True if scores have a linear bias by distance (ALiBi).
    pub alibi: bool,
    /// True if the output of the heads is multiplied by `σ(gate(x))`. A delta net always has a gate.
    pub gated: bool,
    /// Keys and values from latents, if any.
    pub latent: Option<LatentConfig>,
    /// Rule that weights the values.
    pub mechanism: Mechanism,
}

/// Rule that weights an attention's values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mechanism {
    /// Weights are the softmax of the scores `scale · q kᵀ`.
    Softmax {
        /// Keys that a query attends to.
        reach: Reach,
        /// Factor on the scores.
        scale: f64,
        /// Bounds scores to ±cap by `cap · tanh(score / cap)`.
        soft_cap: Option<f64>,
        /// True if each head has a learned score without a value.
        sinks: bool,
        /// Probability of dropping an attention weight during training.
        dropout: f64,
    },
    /// Random features estimate the causal softmax (Choromanski et al. 2021).
    Linear {
        /// Features per head.
        features: usize,
        /// Seed of the features.
        seed: u64,
        /// Stream of the seed: the block's index.
        stream: u64,
    },
    /// The gated delta rule, which writes values to a memory by their keys.
    Delta(DeltaNetConfig),
}

impl AttentionConfig {
    /// Causal softmax attention with `heads` heads, each `d_model / heads` wide, without biases or dropout.
    pub fn new(d_model: usize, heads: usize) -> Self {
        let head_dim = d_model / heads.max(1);
        Self {
            d_model,
            heads,
            kv_heads: heads,
            head_dim,
            qkv_bias: false,
            out_bias: false,
            qk_norm: None,
            qk_norm_span: QkNormSpan::Head,
            values: None,
            alibi: false,
            gated: false,
            latent: None,
            mechanism: Mechanism::Softmax {
                reach: Reach::Causal,
                scale: default_scale(head_dim),
                soft_cap: None,
                sinks: false,
                dropout: 0.0,
            },
        }
    }

    /// Returns the configuration with another reach. Linear attention stays causal.
    pub fn with_reach(mut self, new: Reach) -> Self {
        if let Mechanism::Softmax { reach, .. } = &mut self.mechanism {
            *reach = new;
        }
        self
    }

    /// Returns the configuration without a window.
    pub(crate) fn without_window(self) -> Self {
        match self.mechanism {
            Mechanism::Softmax { reach, .. } => self.with_reach(reach.without_window()),
            Mechanism::Linear { .. } | Mechanism::Delta(_) => self,
        }
    }

    /// The fused projection to queries, keys and values, in this order.
    pub(crate) fn qkv(&self) -> LinearConfig {
        let width = match (self.mechanism, self.latent) {
            (Mechanism::Delta(delta), _) => delta.channels(self.head_sizes()),
            (_, Some(latent)) => latent.projected(self.head_sizes()),
            (_, None) => (self.heads + 2 * self.kv_heads) * self.head_dim,
        };
        LinearConfig::new(self.d_model, width).with_bias(self.qkv_bias)
    }

    /// The projection to the gate of the heads' outputs, if any.
    pub(crate) fn gate(&self) -> Option<LinearConfig> {
        let is_delta = matches!(self.mechanism, Mechanism::Delta(_));
        let gate = LinearConfig::new(self.d_model, self.mixed()).with_bias(self.qkv_bias);
        (self.gated || is_delta).then_some(gate)
    }

    /// The output projection.
    pub(crate) fn out(&self) -> LinearConfig {
        LinearConfig::new(self.mixed(), self.d_model).with_bias(self.out_bias)
    }

    /// The linear layers: the projection to queries, keys and values; that of the queries' latents, if any; the gate, if any;
    /// the output projection.
    pub(crate) fn linear_layers(&self) -> impl Iterator<Item = LinearConfig> {
        let q_up = self
            .latent
            .and_then(|latent| latent.q_up(self.head_sizes()));
        let own = iter::once(self.qkv()).chain(q_up);
        own.chain(self.gate()).chain([self.out()])
    }

    /// The linear layers that are never packed: the rates of a delta net, and the projection from latents to keys and values.
    pub(crate) fn unpacked_layers(&self) -> impl Iterator<Item = LinearConfig> {
        let rates = self.delta().map(|delta| delta.rates(self.head_sizes()));
        let up = self.latent.map(|latent| latent.up(self.head_sizes()));
        rates.into_iter().chain(up)
    }

    /// Number of parameters of the projections from latents, with their norms.
    pub(crate) fn latent_parameters(&self) -> u128 {
        let latent = self.latent;
        latent.map_or(0, |latent| latent.parameters(self.head_sizes()))
    }

    /// Heads and width of the keys that a cache holds, and the number of its tensors: keys and values, or latents.
    pub(crate) fn cached(&self) -> ([usize; 2], usize) {
        match self.latent {
            Some(latent) => ([1, latent.row()], 1),
            None => ([self.kv_heads, self.head_dim], 2),
        }
    }

    /// Width of the outputs of all heads.
    fn mixed(&self) -> usize {
        let width = match (self.mechanism, self.latent) {
            (Mechanism::Delta(delta), _) => delta.value_dim,
            (_, Some(latent)) => latent.value_dim,
            (_, None) => self.head_dim,
        };
        self.heads * width
    }

    /// The sizes that every attention has.
    pub(crate) fn head_sizes(&self) -> HeadSizes {
        HeadSizes {
            d_model: self.d_model,
            heads: self.heads,
            key_heads: self.kv_heads,
            key_dim: self.head_dim,
        }
    }

    /// The delta net's configuration, if it is one.
    pub(crate) fn delta(&self) -> Option<DeltaNetConfig> {
        match self.mechanism {
            Mechanism::Delta(delta) => Some(delta),
            Mechanism::Softmax { .. } | Mechanism::Linear { .. } => None,
        }
    }

    /// Number of sinks.
    pub(crate) fn sinks(&self) -> usize {
        match self.mechanism {
            Mechanism::Softmax { sinks: true, .. } => self.heads,
            Mechanism::Softmax { .. } | Mechanism::Linear { .. } | Mechanism::Delta(_) => 0,
        }
    }

    /// The norms of queries and of keys.
    pub(crate) fn head_norms(&self) -> Option<[NormConfig; 2]> {
        let norm = self.qk_norm?;
        let heads = match self.qk_norm_span {
            QkNormSpan::Head => [1, 1],
            QkNormSpan::Projection => [self.heads, self.kv_heads],
        };
        Some(heads.map(|heads| NormConfig::new(norm, heads * self.head_dim)))
    }

    /// Builds an attention with the initial weights of [`LinearConfig::init`].
    pub fn init<B: Backend>(&self, device: &Device<B>) -> Attention<B> {
        self.init_from(&Initializer::standalone(self.d_model, device), "")
    }

    pub(crate) fn init_from<B: Backend>(
        &self,
        from: &Initializer<'_, B>,
        path: &str,
    ) -> Attention<B> {
        let layer = |config: LinearConfig, name: &str, into| {
            config.init_from(from, &format!("{path}.{name}"), into)
        };
        let norms = self
            .head_norms()
            .map(|norms| norms.map(|norm| norm.init(from.device())));
        let (q_norm, k_norm) = norms.map_or((None, None), |[q, k]| (Some(q), Some(k)));
        Attention {
            qkv: layer(self.qkv(), "qkv", OutputRole::Hidden),
            out: layer(self.out(), "out", OutputRole::Residual),
            gate: self
                .gate()
                .map(|gate| layer(gate, "gate", OutputRole::Hidden)),
            delta: self
                .delta()
                .map(|delta| delta.init_from(self.head_sizes(), from, &format!("{path}.delta"))),
            latent: self
                .latent
                .map(|latent| latent.init_from(self.head_sizes(), from, &format!("{path}.latent"))),
            q_norm,
            k_norm,
            values: self.values.map(|values| {
                let heads = [self.kv_heads, self.head_dim];
                values.init_from(from, &format!("{path}.values"), heads)
            }),
            sinks: (self.sinks() > 0).then(|| from.constant(0.0, self.sinks())),
            features: FeatureTable::init(self, from.device()),
            alibi: self
                .alibi
                .then(|| AlibiSlopes::init(self.heads, from.device())),
            qk_norm_span: self.qk_norm_span,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            options: options(self.mechanism),
        }
    }
}

/// `1/√head_dim`.
pub(crate) fn default_scale(head_dim: usize) -> f64 {
    1.0 / (head_dim as f64).sqrt()
}

/// The kernel options of a mechanism. Only a softmax uses them.
fn options(mechanism: Mechanism) -> AttentionOptions {
    let (reach, scale, soft_cap, dropout) = match mechanism {
        Mechanism::Softmax {
            reach,
            scale,
            soft_cap,
            dropout,
            ..
        } => (reach, scale, soft_cap, dropout),
        Mechanism::Linear { .. } | Mechanism::Delta(_) => (Reach::Causal, 1.0, None, 0.0),
    };
    AttentionOptions {
        reach,
        scale,
        soft_cap,
        dropout,
        precision: Precision::default(),
    }
}
