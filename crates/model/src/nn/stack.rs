//! A stack of blocks with the norm after the last one: an encoder, or the body of a decoder.

use burn::module::Module;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Bool, Device, Tensor};

use emberlm_kernels::{AttentionMask, Backend};

use crate::config::LayerPositions;
use crate::error::ContextError;
use crate::nn::adapter_rows::AdapterRows;
use crate::nn::attention::{AttentionConfig, Mechanism};
use crate::nn::block::{Block, BlockConfig};
use crate::nn::context::{AttentionContext, BlockContext, StackContext, StackMemory};
use crate::nn::dropout::dropout;
use crate::nn::init::Initializer;
use crate::nn::kv_cache::{CacheFormat, KvCache, LayerCache};
use crate::nn::norm::{Norm, NormConfig};
use crate::nn::packed::{self, BlockPass, RowSpan, Span, Taps};
use crate::nn::position::{RotaryConfig, RotaryTable};
use crate::nn::relative_bias::{RelativeBias, RelativeConfig};

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
        let mut attention = match self.full_layers.contains(&layer) {
            true => self.block.attention.without_window(),
            false => self.block.attention,
        };
        if let Mechanism::Linear { stream, .. } = &mut attention.mechanism {
            *stream = layer as u64;
        }
        attention
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

    /// The blocks as they differ in their feed-forward layers, each with the number of such blocks: those with experts, if
    /// any, and those without.
    pub fn kinds(&self) -> [(usize, BlockConfig); 2] {
        let dense = match self.block.experts {
            Some(_) => self.dense_layers.len().min(self.n_layers),
            None => self.n_layers,
        };
        let without = BlockConfig {
            experts: None,
            ..self.block
        };
        [(self.n_layers - dense, self.block), (dense, without)]
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

/// The rotary table of [`LayerRotaryConfig`].
#[derive(Module, Debug)]
struct LayerRotary<B: BurnBackend> {
    table: Option<RotaryTable<B>>,
    #[module(skip)]
    layers: Vec<usize>,
}

/// A sequence of blocks, followed by an optional norm.
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
/// assert_eq!(config.init::<Flex>(&device).forward(x, mask, None)?.dims(), [2, 3, 16]);
/// # Ok::<(), emberlm_model::ContextError>(())
/// ```
///
/// A stack with cross-attention is the decoder of an encoder–decoder. The memory is projected only once, for any number
/// of inputs:
///
/// ```
/// use burn::tensor::{Distribution, Tensor};
/// use burn_flex::Flex;
/// use emberlm_model::nn::{
///     AttentionConfig, BlockConfig, CrossAttentionConfig, FeedForwardConfig, StackConfig, StackContext,
/// };
///
/// let device = Default::default();
/// let block = BlockConfig {
///     cross_attention: Some(CrossAttentionConfig::new(16, 4)),
///     ..BlockConfig::new(AttentionConfig::new(16, 4), FeedForwardConfig::new(16, 64))
/// };
/// let decoder = StackConfig::new(2, block).init::<Flex>(&device);
/// let encoded = Tensor::random([2, 7, 16], Distribution::Default, &device);
/// let memory = decoder.project_memory(encoded, None)?;
/// let x = Tensor::random([2, 3, 16], Distribution::Default, &device);
/// let context = StackContext { memory: Some(&memory), ..StackContext::default() };
/// assert_eq!(decoder.forward(x, context, None)?.dims(), [2, 3, 16]);
/// # Ok::<(), emberlm_model::ContextError>(())
/// ```
#[derive(Module, Debug)]
pub struct Stack<B: BurnBackend> {
    /// The blocks in order.
    pub blocks: Vec<Block<B>>,
    /// Norm after the last block.
    pub norm_final: Option<Norm<B>>,
    rotary: Option<RotaryTable<B>>,
    layer_rotary: Option<LayerRotary<B>>,
    /// The bias of all self-attentions' scores, if any. Published checkpoints store it with the first block.
    pub relative_bias: Option<RelativeBias<B>>,
    #[module(skip)]
    dropout: f64,
}

/// Sequences of a pass through a stack, with what its blocks read in addition to the rows.
#[derive(Debug)]
pub(crate) struct StackSpan<'a, B: Backend> {
    pub rows: RowSpan,
    /// The mask of the self-attentions. Its bias is set by a stack with relative positions.
    pub mask: AttentionMask<B>,
    /// The cache that the rows continue.
    pub cache: Option<&'a mut KvCache<B>>,
    /// The memory of the cross-attentions.
    pub memory: Option<&'a StackMemory<B>>,
}

impl<B: Backend> Stack<B> {
    /// Maps `[batch, seq, d_model]` to the same shape. With a cache, `x` continues the cached tokens, and its keys and
    /// values are appended to the cache.
    ///
    /// # Errors
    /// Those of [`Block::forward`], or a cache or memory that has another number of blocks.
    pub fn forward<'a>(
        &self,
        x: Tensor<B, 3>,
        context: impl Into<StackContext<'a, B>>,
        cache: Option<&mut KvCache<B>>,
    ) -> Result<Tensor<B, 3>, ContextError> {
        let context = context.into();
        self.check(&context, cache.as_deref())?;
        Ok(self.run(x, context, cache))
    }

    /// Computes the keys and values of every block's cross-attention from a memory `[batch, memory, d_memory]`. The
    /// padding mask `[batch, memory]` is true where queries may attend. The result does not depend on the stack's
    /// input, so it can be reused.
    ///
    /// # Errors
    /// A block has no cross-attention.
    pub fn project_memory(
        &self,
        memory: Tensor<B, 3>,
        padding: Option<Tensor<B, 2, Bool>>,
    ) -> Result<StackMemory<B>, ContextError> {
        match self.blocks.iter().all(|block| block.cross.is_some()) {
            true => Ok(self.memory(memory, padding)),
            false => Err(ContextError::NoCrossAttention),
        }
    }

    /// [`Stack::project_memory`] of a stack whose blocks have a cross-attention.
    pub(crate) fn memory(
        &self,
        memory: Tensor<B, 3>,
        padding: Option<Tensor<B, 2, Bool>>,
    ) -> StackMemory<B> {
        let crosses = self.blocks.iter().filter_map(|block| block.cross.as_ref());
        let heads = crosses.map(|cross| cross.attention.project_memory(memory.clone()));
        StackMemory {
            blocks: heads.collect(),
            padding,
        }
    }

    /// Computes every block's self-attention weights without a cache: `[batch, heads, seq, seq]` each.
    ///
    /// # Errors
    /// Those of [`Stack::forward`].
    pub fn attention_weights<'a>(
        &self,
        x: Tensor<B, 3>,
        context: impl Into<StackContext<'a, B>>,
    ) -> Result<Vec<Tensor<B, 4>>, ContextError> {
        let context = context.into();
        self.check(&context, None)?;
        Ok(self.run_attention_weights(x, context))
    }

    /// Returns an error if a block does not support the context or the cache.
    fn check(
        &self,
        context: &StackContext<'_, B>,
        cache: Option<&KvCache<B>>,
    ) -> Result<(), ContextError> {
        let blocks = self.blocks.len();
        match (cache.map(|cache| cache.layers.len()), context.memory) {
            (Some(cached), _) if cached != blocks => {
                return Err(ContextError::CachedLayers { cached, blocks });
            }
            (_, Some(memory)) if memory.blocks.len() != blocks => {
                let projected = memory.blocks.len();
                return Err(ContextError::MemoryLayers { projected, blocks });
            }
            _ => {}
        }
        let has_memory = context.memory.is_some();
        let check = |block: &Block<B>| block.check(&context.mask, cache.is_some(), has_memory);
        self.blocks.iter().try_for_each(check)
    }

    /// [`Stack::forward`] with inputs that have been checked.
    pub(crate) fn run(
        &self,
        x: Tensor<B, 3>,
        context: StackContext<'_, B>,
        cache: Option<&mut KvCache<B>>,
    ) -> Tensor<B, 3> {
        let span = StackSpan::of_batch(&x, context, cache);
        self.finish(self.run_blocks(x, vec![span], None, Taps::default()))
    }

    /// Computes the last block's output for the rows of several sequences, `[1, rows, d_model]` or a batch to the same
    /// shape. `taps` receives the blocks' attention weights.
    pub(crate) fn run_blocks(
        &self,
        mut x: Tensor<B, 3>,
        mut spans: Vec<StackSpan<'_, B>>,
        adapters: Option<&AdapterRows>,
        mut taps: Taps<'_, B>,
    ) -> Tensor<B, 3> {
        if let Some(relative) = &self.relative_bias {
            for span in &mut spans {
                span.mask.bias = Some(relative.bias(span.past(), span.rows.len));
            }
        }
        let places = spans.iter().map(|span| (span.rows, span.past()));
        let positions = (spans.len() > 1).then(|| packed::positions(places, &x.device()));
        let angles_of = |table: &Option<RotaryTable<B>>| {
            let (table, positions) = (table.as_ref()?, positions.as_ref()?);
            Some(table.angles_at(positions))
        };
        let most = angles_of(&self.rotary);
        let others = self.layer_rotary.as_ref();
        let others = others.map(|other| (other, angles_of(&other.table)));
        for (layer, block) in self.blocks.iter().enumerate() {
            let angles = match &others {
                Some((other, angles)) if other.layers.contains(&layer) => angles,
                _ => &most,
            };
            let mut pass = BlockPass {
                angles: angles.clone(),
                adapters,
                taps: taps.reborrowed(),
                ..BlockPass::new(self.rotary(layer))
            };
            let spans = spans.iter_mut().map(|span| span.of_block(layer));
            x = block.run_rows(x, &mut spans.collect::<Vec<_>>(), &mut pass);
        }
        x
    }

    /// [`Stack::attention_weights`] with a context that has been checked.
    pub(crate) fn run_attention_weights(
        &self,
        x: Tensor<B, 3>,
        context: StackContext<'_, B>,
    ) -> Vec<Tensor<B, 4>> {
        let mut weights = Vec::with_capacity(self.blocks.len());
        let taps = Taps {
            own: Some(&mut weights),
            cross: None,
        };
        let span = StackSpan::of_batch(&x, context, None);
        self.run_blocks(x, vec![span], None, taps);
        weights
    }

    /// Computes the weights of every block's cross-attention without a cache: `[batch, heads, seq, memory]` each. The
    /// context must have a memory.
    pub(crate) fn run_cross_weights(
        &self,
        x: Tensor<B, 3>,
        context: StackContext<'_, B>,
    ) -> Vec<Tensor<B, 4>> {
        let mut weights = Vec::with_capacity(self.blocks.len());
        let taps = Taps {
            own: None,
            cross: Some(&mut weights),
        };
        let span = StackSpan::of_batch(&x, context, None);
        self.run_blocks(x, vec![span], None, taps);
        weights
    }

    /// Returns the context of block `layer`, without a cache.
    pub(crate) fn context<'a>(
        &'a self,
        layer: usize,
        context: &StackContext<'a, B>,
    ) -> BlockContext<'a, B> {
        BlockContext {
            attention: AttentionContext {
                rotary: self.rotary(layer),
                mask: context.mask.clone(),
                cache: None,
            },
            memory: context.memory.and_then(|memory| memory.block(layer)),
            routings: None,
        }
    }

    /// Applies the final norm, if any, and dropout to rows of the last block's output.
    pub(crate) fn finish(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let x = match &self.norm_final {
            Some(norm) => norm.forward(x),
            None => x,
        };
        dropout(x, self.dropout)
    }

    /// The rotation in block `layer`.
    pub(crate) fn rotary(&self, layer: usize) -> Option<&RotaryTable<B>> {
        match &self.layer_rotary {
            Some(other) if other.layers.contains(&layer) => other.table.as_ref(),
            _ => self.rotary.as_ref(),
        }
    }
}

impl<'a, B: Backend> StackSpan<'a, B> {
    /// A batch `[batch, seq, d_model]`.
    fn of_batch(
        x: &Tensor<B, 3>,
        context: StackContext<'a, B>,
        cache: Option<&'a mut KvCache<B>>,
    ) -> Self {
        Self {
            rows: RowSpan::of_batch(x),
            mask: context.mask,
            cache,
            memory: context.memory,
        }
    }

    /// The number of cached tokens that the rows continue.
    fn past(&self) -> usize {
        self.cache.as_ref().map_or(0, |cache| cache.len())
    }

    fn of_block(&mut self, layer: usize) -> Span<'_, B> {
        let cache = self.cache.as_mut();
        Span {
            rows: self.rows,
            mask: self.mask.clone(),
            cache: cache.and_then(|cache| cache.layer(layer)),
            memory: self.memory.and_then(|memory| memory.block(layer)),
        }
    }
}
