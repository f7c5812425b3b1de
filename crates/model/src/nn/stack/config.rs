//! Configuration of a stack.

use burn::tensor::Device;

use emberlm_kernels::Backend;

use super::{LayerRotary, Stack};
use crate::config::LayerPositions;
use crate::nn::attention::{AttentionConfig, Mechanism};
use crate::nn::block::BlockConfig;
use crate::nn::init::Initializer;
use crate::nn::kv_cache::{CacheFormat, KvCache, LayerCache};
use crate::nn::norm::NormConfig;
use crate::nn::position::RotaryConfig;
use crate::nn::relative_bias::RelativeConfig;

/// Configuration of a [`Stack`].
#[derive(Clone, Debug, PartialEq)]
pub struct StackConfig {
    /// Number of blocks.
    pub n_layers: usize,
    /// Configuration common to all blocks; [`StackConfig::block()`] returns that of one block.
    pub block: BlockConfig,
    /// Indices, from 0, of the blocks whose softmax attention ignores the window.
    pub full_layers: Vec<usize>,
    /// Indices, from 0, of the blocks that have a feed-forward layer instead of experts.
    pub dense_layers: Vec<usize>,
    /// Indices, from 0, of the blocks whose attention adds vectors of tokens to the values, if it has any.
    pub value_layers: Vec<usize>,
    /// Blocks with a gated delta net in place of the attention, if any.
    pub delta: Option<DeltaLayersConfig>,
    /// Rotary positions of queries and keys, if any.
    pub rotary: Option<RotaryConfig>,
    /// Blocks with another rotation, if any.
    pub layer_rotary: Option<LayerRotaryConfig>,
    /// False if the first block's attention reads its input without a norm, because the embeddings are normalized.
    pub first_norm: bool,
    /// True if a norm follows the last block.
    pub final_norm: bool,
    /// Biases of the self-attentions' scores by distance, if any.
    pub relative: Option<RelativeConfig>,
    /// Probability of dropping an element of the stack's output during training.
    pub dropout: f64,
}

impl StackConfig {
    /// Identical blocks followed by a norm, without rotary positions.
    pub const fn new(n_layers: usize, block: BlockConfig) -> Self {
        Self {
            n_layers,
            block,
            full_layers: Vec::new(),
            dense_layers: Vec::new(),
            value_layers: Vec::new(),
            delta: None,
            rotary: None,
            layer_rotary: None,
            first_norm: true,
            final_norm: true,
            relative: None,
            dropout: 0.0,
        }
    }

    /// The attention of block `layer`. The blocks of linear attention draw their features from separate random streams.
    pub fn attention(&self, layer: usize) -> AttentionConfig {
        if let Some(delta) = self.delta_of(layer) {
            return delta.attention;
        }
        let mut attention = match self.full_layers.contains(&layer) {
            true => self.block.attention.without_window(),
            false => self.block.attention,
        };
        if !self.value_layers.contains(&layer) {
            attention.values = None;
        }
        if let Mechanism::Linear { stream, .. } = &mut attention.mechanism {
            *stream = layer as u64;
        }
        attention
    }

    /// The delta nets, if block `layer` has one.
    fn delta_of(&self, layer: usize) -> Option<&DeltaLayersConfig> {
        let delta = self.delta.as_ref()?;
        delta.layers.binary_search(&layer).is_ok().then_some(delta)
    }

    /// The configuration of block `layer`.
    pub fn block(&self, layer: usize) -> BlockConfig {
        let is_dense = self.dense_layers.contains(&layer);
        BlockConfig {
            attention: self.attention(layer),
            attention_norm: self.block.attention_norm && (self.first_norm || layer > 0),
            experts: self.block.experts.filter(|_| !is_dense),
            ..self.block
        }
    }

    /// The blocks as they differ in their linear layers, each with the number of such blocks: those with experts, if any, and
    /// those without, each with a delta net or another attention.
    pub fn kinds(&self) -> Vec<(usize, BlockConfig)> {
        let kind = |is_dense: bool, delta: Option<&DeltaLayersConfig>| BlockConfig {
            attention: delta.map_or(self.block.attention, |delta| delta.attention),
            experts: self.block.experts.filter(|_| !is_dense),
            ..self.block
        };
        let Some(delta) = &self.delta else {
            let dense = self.n_layers - self.expert_layers();
            return vec![
                (self.expert_layers(), self.block),
                (dense, kind(true, None)),
            ];
        };
        let count = |is_dense: bool, is_delta: bool| {
            let layers = (0..self.n_layers).filter(|&layer| {
                self.is_dense(layer) == is_dense && self.delta_of(layer).is_some() == is_delta
            });
            layers.count()
        };
        let of = |is_dense| {
            [
                (count(is_dense, false), kind(is_dense, None)),
                (count(is_dense, true), kind(is_dense, Some(delta))),
            ]
        };
        [false, true].into_iter().flat_map(of).collect()
    }

    /// Number of blocks with experts.
    pub(crate) fn expert_layers(&self) -> usize {
        match self.block.experts {
            Some(_) => self.n_layers.saturating_sub(self.dense_layers.len()),
            None => 0,
        }
    }

    /// True if block `layer` has no experts.
    fn is_dense(&self, layer: usize) -> bool {
        self.block.experts.is_none() || self.dense_layers.contains(&layer)
    }

    /// The attentions of the blocks as they differ in their parameters, each with the number of such blocks.
    pub(crate) fn attentions(&self) -> Vec<(usize, AttentionConfig)> {
        let delta = self.delta.as_ref();
        let nets = delta.map_or(0, |delta| delta.layers.len());
        let delta = delta.map(|delta| (nets, delta.attention));
        [(self.n_layers.saturating_sub(nets), self.block.attention)]
            .into_iter()
            .chain(delta)
            .collect()
    }

    /// The norm after the last block.
    pub(crate) fn norm_final(&self) -> Option<NormConfig> {
        let norm = NormConfig::new(self.block.norm, self.block.attention.d_model);
        self.final_norm.then_some(norm)
    }

    /// Builds an empty f32 cache for `batch` sequences of up to `capacity` tokens; see [`KvCache::new`].
    pub fn cache<B: Backend>(
        &self,
        batch: usize,
        capacity: usize,
        device: &Device<B>,
    ) -> KvCache<B> {
        self.cache_in(CacheFormat::F32, batch, capacity, device)
    }

    /// Builds an empty cache in a format that [`CacheFormat::check`] accepts.
    pub(crate) fn cache_in<B: Backend>(
        &self,
        format: CacheFormat,
        batch: usize,
        capacity: usize,
        device: &Device<B>,
    ) -> KvCache<B> {
        let layer =
            |layer| LayerCache::new(&self.attention(layer), format, batch, capacity, device);
        let layers = (0..self.n_layers).map(layer).collect();
        KvCache { layers, capacity }
    }

    /// Builds a stack with the initial weights of [`crate::nn::LinearConfig::init`].
    pub fn init<B: Backend>(&self, device: &Device<B>) -> Stack<B> {
        let from = Initializer::standalone(self.block.attention.d_model, device);
        self.init_from(&from)
    }

    pub(crate) fn init_from<B: Backend>(&self, from: &Initializer<'_, B>) -> Stack<B> {
        let block = |layer| {
            self.block(layer)
                .init_from(from, &format!("blocks.{layer}"))
        };
        Stack {
            blocks: (0..self.n_layers).map(block).collect(),
            norm_final: self.norm_final().map(|norm| norm.init(from.device())),
            rotary: self
                .rotary
                .as_ref()
                .map(|rotary| rotary.init(from.device())),
            layer_rotary: self.layer_rotary.as_ref().map(|other| LayerRotary {
                table: other
                    .rotary
                    .as_ref()
                    .map(|rotary| rotary.init(from.device())),
                layers: other.layers.clone(),
            }),
            relative_bias: self
                .relative
                .map(|relative| relative.init_from(&self.block.attention, from)),
            dropout: self.dropout,
        }
    }
}

/// Blocks with a gated delta net.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaLayersConfig {
    /// The configuration of the delta nets.
    pub attention: AttentionConfig,
    /// Indices of the blocks, from 0, in ascending order.
    pub layers: Vec<usize>,
}

/// Blocks whose rotation of queries and keys differs from the others'.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerRotaryConfig {
    /// Indices of the blocks, from 0.
    pub layers: Vec<usize>,
    /// Their rotation, if any.
    pub rotary: Option<RotaryConfig>,
}

impl LayerRotaryConfig {
    /// The blocks of `positions` in a stack of `n_layers` blocks whose others have the rotation `main`.
    pub(crate) fn of(
        positions: &LayerPositions,
        n_layers: usize,
        main: Option<RotaryConfig>,
    ) -> Self {
        let rotary = match positions {
            LayerPositions::None { .. } => None,
            LayerPositions::Rotary { base, scaling, .. } => main.map(|main| RotaryConfig {
                base: *base,
                scaling: scaling.clone(),
                ..main
            }),
        };
        Self {
            layers: positions.layers().layers(n_layers),
            rotary,
        }
    }
}
