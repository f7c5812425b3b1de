//! A stack of blocks.

use burn::module::Module;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Tensor};

use emberlm_kernels::{AttentionMask, Backend, Reach};

use crate::attention::{AttentionConfig, AttentionContext, Mechanism};
use crate::block::{Block, BlockConfig};
use crate::init::Initializer;
use crate::kv_cache::KvCache;
use crate::norm::{Norm, NormConfig};
use crate::position::{RotaryConfig, RotaryTable};

/// The configuration of a [`Stack`].
#[derive(Clone, Debug, PartialEq)]
pub struct StackConfig {
    /// The number of blocks.
    pub n_layers: usize,
    /// A block; [`StackConfig::block`] says in what the blocks differ.
    pub block: BlockConfig,
    /// The blocks, counted from 0, whose softmax attention sees every earlier key whatever [`StackConfig::block`]'s reach.
    pub full_layers: Vec<usize>,
    /// The rotation of queries and keys.
    pub rotary: Option<RotaryConfig>,
    /// True if there is a norm after the last block.
    pub final_norm: bool,
}

impl StackConfig {
    /// Equal blocks with a norm after the last, without rotary positions.
    pub const fn new(n_layers: usize, block: BlockConfig) -> Self {
        Self {
            n_layers,
            block,
            full_layers: Vec::new(),
            rotary: None,
            final_norm: true,
        }
    }

    /// Block `layer`'s attention.
    pub fn attention(&self, layer: usize) -> AttentionConfig {
        let mut attention = match self.full_layers.contains(&layer) {
            true => self.block.attention.with_reach(Reach::Causal),
            false => self.block.attention,
        };
        if let Mechanism::Linear { stream, .. } = &mut attention.mechanism {
            *stream = layer as u64;
        }
        attention
    }

    /// Block `layer`.
    pub fn block(&self, layer: usize) -> BlockConfig {
        BlockConfig {
            attention: self.attention(layer),
            ..self.block
        }
    }

    /// The norm after the last block.
    pub(crate) fn norm_final(&self) -> Option<NormConfig> {
        let norm = NormConfig::new(self.block.norm, self.block.attention.d_model);
        self.final_norm.then_some(norm)
    }

    /// A stack with the initial weights of [`crate::nn::LinearConfig::init`].
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
            rotary: self.rotary.map(|rotary| rotary.init(from.device())),
        }
    }
}

/// Blocks, and the norm after the last one.
///
/// ```
/// use burn::tensor::{Distribution, Tensor};
/// use burn_flex::Flex;
/// use emberlm_model::nn::{
///     AttentionConfig, AttentionMask, BlockConfig, FeedForwardConfig, Reach, RotaryConfig, StackConfig,
/// };
///
/// let device = Default::default();
/// let attention = AttentionConfig::new(16, 4).with_reach(Reach::Full); // an encoder
/// let block = BlockConfig::new(attention, FeedForwardConfig::new(16, 64));
/// let config = StackConfig {
///     rotary: Some(RotaryConfig::new(8, 4)),
///     ..StackConfig::new(2, block)
/// };
/// let x = Tensor::random([2, 3, 16], Distribution::Default, &device);
/// let padding = Tensor::from_data([[true, true, true], [true, true, false]], &device);
/// let mask = AttentionMask { padding: Some(padding), ..Default::default() };
/// assert_eq!(config.init::<Flex>(&device).forward(x, mask, None).dims(), [2, 3, 16]);
/// ```
#[derive(Module, Debug)]
pub struct Stack<B: BurnBackend> {
    /// The blocks in order.
    pub blocks: Vec<Block<B>>,
    /// After the last block.
    pub norm_final: Option<Norm<B>>,
    rotary: Option<RotaryTable<B>>,
}

impl<B: Backend> Stack<B> {
    /// `[batch, seq, d_model]` to the same, with every block's attention under `mask`, as [`AttentionContext::mask`]. With a
    /// cache, `x` continues the tokens in it; keys and values are appended to it.
    pub fn forward(
        &self,
        mut x: Tensor<B, 3>,
        mask: AttentionMask<B>,
        cache: Option<&mut KvCache<B>>,
    ) -> Tensor<B, 3> {
        let mut caches = cache.map(|cache| cache.layers.iter_mut());
        for block in &self.blocks {
            let context = AttentionContext {
                cache: caches.as_mut().and_then(Iterator::next),
                ..self.context(&mask)
            };
            x = block.forward(x, context);
        }
        self.finish(x)
    }

    /// The attention weights of every block without a cache, `[batch, heads, seq, seq]` each.
    pub fn attention_weights(
        &self,
        mut x: Tensor<B, 3>,
        mask: AttentionMask<B>,
    ) -> Vec<Tensor<B, 4>> {
        let mut weights = Vec::with_capacity(self.blocks.len());
        for block in &self.blocks {
            weights.push(block.attention_weights(x.clone(), self.rotary(), mask.clone()));
            x = block.forward(x, self.context(&mask));
        }
        weights
    }

    /// The context of a block's attention without a cache.
    pub(crate) fn context(&self, mask: &AttentionMask<B>) -> AttentionContext<'_, B> {
        AttentionContext {
            rotary: self.rotary(),
            mask: mask.clone(),
            cache: None,
        }
    }

    /// The final norm of the last block's output, of any rows.
    pub(crate) fn finish(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        match &self.norm_final {
            Some(norm) => norm.forward(x),
            None => x,
        }
    }

    pub(crate) fn rotary(&self) -> Option<&RotaryTable<B>> {
        self.rotary.as_ref()
    }
}
