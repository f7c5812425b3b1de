//! Configuration of a block.

use burn::tensor::Device;

use emberlm_kernels::Backend;

use super::Block;
use crate::config::{self, Wiring};
use crate::nn::attention::AttentionConfig;
use crate::nn::cross_attention::CrossAttentionConfig;
use crate::nn::cross_sublayer::CrossSublayer;
use crate::nn::feed_forward::{FeedForwardConfig, FeedForwardLayer};
use crate::nn::init::Initializer;
use crate::nn::linear::LinearConfig;
use crate::nn::mixture::MixtureConfig;
use crate::nn::norm::NormConfig;

/// Configuration of a [`Block`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockConfig {
    /// The self-attention.
    pub attention: AttentionConfig,
    /// The cross-attention to an encoder's output, in the decoder of an encoder–decoder.
    pub cross_attention: Option<CrossAttentionConfig>,
    /// The feed-forward layer.
    pub feed_forward: FeedForwardConfig,
    /// A mixture of experts in place of the feed-forward layer.
    pub experts: Option<MixtureConfig>,
    /// The norms.
    pub norm: config::Norm,
    /// False if the attention has no norm, as in the first block after normalized embeddings.
    pub attention_norm: bool,
    /// The order of sublayers and norms.
    pub wiring: Wiring,
    /// The factors that mix the stack's input into the block's at the start, if any.
    pub mix: Option<config::ResidualMix>,
    /// Factor on a sublayer's output, if any.
    pub residual_scale: Option<f64>,
    /// Probability of dropping an element of a sublayer's output during training.
    pub dropout: f64,
}

impl BlockConfig {
    /// A pre-norm block with RMSNorm, without cross-attention or dropout.
    pub const fn new(attention: AttentionConfig, feed_forward: FeedForwardConfig) -> Self {
        Self {
            attention,
            cross_attention: None,
            feed_forward,
            experts: None,
            norm: config::Norm::Rms { epsilon: 1e-6 },
            attention_norm: true,
            wiring: Wiring::PreNorm,
            mix: None,
            residual_scale: None,
            dropout: 0.0,
        }
    }

    /// The block's norms, each over `d_model` elements.
    pub(crate) fn norms(&self) -> BlockNorms<NormConfig> {
        let norm = NormConfig::new(self.norm, self.attention.d_model);
        let shared = self.wiring == Wiring::Parallel { shared_norm: true };
        let after = (self.wiring == Wiring::Sandwich).then_some(norm);
        BlockNorms {
            first: self.attention_norm.then_some(norm),
            second: (!shared).then_some(norm),
            after,
        }
    }

    /// The block's linear layers, in this order:
    /// - attention: fused queries, keys and values; queries of latents, if any; gate, if any; output
    /// - cross-attention, if any: queries; keys and values; output
    /// - feed-forward: gate, if any; up; down; those of each expert, then those of the shared one, in place of them if it
    ///   is a mixture
    ///
    /// The router of a mixture, the gate of its shared expert, the rates of a delta net and the projection to latent attention's
    /// keys and values are not among them: they are never packed.
    pub fn linear_layers(&self) -> Vec<LinearConfig> {
        let feed_forward = match &self.experts {
            Some(mixture) => {
                let expert = mixture.expert.linear_layers();
                let shared = mixture.shared().into_iter();
                let shared = shared.flat_map(|(shared, _)| shared.linear_layers());
                expert
                    .repeat(mixture.count)
                    .into_iter()
                    .chain(shared)
                    .collect()
            }
            None => self.feed_forward.linear_layers(),
        };
        self.with_attention(feed_forward)
    }

    /// The linear layers that one token passes through: [`BlockConfig::linear_layers`], of a mixture only the active
    /// experts, with those that are never packed.
    pub fn active_linear_layers(&self) -> Vec<LinearConfig> {
        let feed_forward = match &self.experts {
            Some(mixture) => {
                let expert = mixture.expert.linear_layers();
                let shared = mixture.shared().into_iter();
                let shared = shared.flat_map(|(shared, gate)| {
                    let layers = shared.linear_layers().into_iter();
                    layers.chain(gate)
                });
                let active = expert.repeat(mixture.routing.active).into_iter();
                active.chain([mixture.router()]).chain(shared).collect()
            }
            None => self.feed_forward.linear_layers(),
        };
        let mut active = self.with_attention(feed_forward);
        active.extend(self.attention.unpacked_layers());
        active
    }

    fn with_attention(&self, feed_forward: Vec<LinearConfig>) -> Vec<LinearConfig> {
        let attention = self.attention.linear_layers();
        let cross = self.cross_attention.iter();
        let cross = cross.flat_map(CrossAttentionConfig::linear_layers);
        attention.chain(cross).chain(feed_forward).collect()
    }

    /// Number of elements in the block's norms, including those of queries and keys.
    pub(crate) fn norm_parameters(&self) -> u128 {
        let norms = self.norms();
        let whole = [norms.first, norms.second, norms.after, norms.after];
        let heads = self.attention.head_norms().into_iter().flatten();
        let cross = self.cross_attention.iter().flat_map(|cross| {
            let head = cross.head_norm();
            [norms.second, norms.after, head, head]
        });
        let all = whole.into_iter().chain(cross).flatten().chain(heads);
        all.map(|norm| norm.parameters()).sum()
    }

    /// Builds a block with the initial weights of [`crate::nn::LinearConfig::init`].
    pub fn init<B: Backend>(&self, device: &Device<B>) -> Block<B> {
        let from = Initializer::standalone(self.attention.d_model, device);
        self.init_from(&from, "")
    }

    pub(crate) fn init_from<B: Backend>(&self, from: &Initializer<'_, B>, path: &str) -> Block<B> {
        let norms = self.norms();
        let init = |norm: NormConfig| norm.init(from.device());
        Block {
            mix: self.mix.map(|mix| mix.init_from(from)),
            norm1: norms.first.map(init),
            attention: self.attention.init_from(from, &format!("{path}.attention")),
            norm1_after: norms.after.map(init),
            cross: self.cross_attention.map(|cross| CrossSublayer {
                norm: norms.second.map(init),
                attention: cross.init_from(from, &format!("{path}.cross.attention")),
                norm_after: norms.after.map(init),
            }),
            norm2: norms.second.map(init),
            feed_forward: self.init_feed_forward(from, &format!("{path}.feed_forward")),
            norm2_after: norms.after.map(init),
            wiring: self.wiring,
            residual_scale: self.residual_scale,
            residual_dropout: self.dropout,
        }
    }

    fn init_feed_forward<B: Backend>(
        &self,
        from: &Initializer<'_, B>,
        path: &str,
    ) -> FeedForwardLayer<B> {
        match &self.experts {
            Some(mixture) => FeedForwardLayer::Experts(mixture.init_from(from, path)),
            None => FeedForwardLayer::Dense(self.feed_forward.init_from(from, path)),
        }
    }
}

/// The norms of a block.
pub(crate) struct BlockNorms<T> {
    /// Norm of the attention.
    pub(crate) first: Option<T>,
    /// Norm of the feed-forward layer, and a separate one of the cross-attention; `None` if both share the first.
    pub(crate) second: Option<T>,
    /// Norm after each sublayer.
    pub(crate) after: Option<T>,
}
