//! A stack of blocks with the norm after the last one: an encoder, or the body of a decoder.

mod config;

pub use config::{DeltaLayersConfig, LayerRotaryConfig, StackConfig};

use burn::module::Module;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Bool, Int, Tensor};

use emberlm_kernels::{AttentionMask, Backend, Precision};

use crate::error::ContextError;
use crate::nn::adapter_rows::AdapterRows;
use crate::nn::block::Block;
use crate::nn::context::{StackContext, StackMemory};
use crate::nn::dropout::dropout;
use crate::nn::kv_cache::KvCache;
use crate::nn::linear::Linear;
use crate::nn::norm::Norm;
use crate::nn::packed::{self, BlockPass, RowSpan, Span};
use crate::nn::position::RotaryTable;
use crate::nn::probe::{LayerProbe, Patterns, Point, Probe, Site};
use crate::nn::relative_bias::RelativeBias;

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

/// The inputs that all sequences of a pass through a stack have in common.
pub(crate) struct StackInputs<'a, B: Backend> {
    /// The token of each row, `[batch, seq]`.
    pub ids: Option<Tensor<B, 2, Int>>,
    /// The adapter of each row.
    pub adapters: Option<&'a AdapterRows>,
    /// Sees and replaces tensors. It needs a batch.
    pub probe: Option<&'a mut dyn Probe<B>>,
}

impl<B: Backend> Default for StackInputs<'_, B> {
    fn default() -> Self {
        Self {
            ids: None,
            adapters: None,
            probe: None,
        }
    }
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

    /// Computes the self-attention weights of every block that has some without a cache: `[batch, heads, seq, seq]` each.
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
        let [cached, has_ids] = [cache.is_some(), context.ids.is_some()];
        let has_memory = context.memory.is_some();
        let check =
            |block: &Block<B>| block.check_attentions(&context.mask, cached, has_ids, has_memory);
        self.blocks.iter().try_for_each(check)
    }

    /// [`Stack::forward`] with inputs that have been checked.
    pub(crate) fn run(
        &self,
        x: Tensor<B, 3>,
        context: StackContext<'_, B>,
        cache: Option<&mut KvCache<B>>,
    ) -> Tensor<B, 3> {
        let inputs = StackInputs {
            ids: context.ids.clone(),
            ..StackInputs::default()
        };
        let span = StackSpan::of_batch(&x, context, cache);
        self.finish(self.run_blocks(x, vec![span], inputs))
    }

    /// [`Stack::run`] without a cache, with a probe.
    pub(crate) fn run_probed(
        &self,
        x: Tensor<B, 3>,
        context: StackContext<'_, B>,
        probe: &mut dyn Probe<B>,
    ) -> Tensor<B, 3> {
        let inputs = StackInputs {
            ids: context.ids.clone(),
            adapters: None,
            probe: Some(&mut *probe),
        };
        let span = StackSpan::of_batch(&x, context, None);
        let x = self.run_blocks(x, vec![span], inputs);
        probe.rows(Site::Final, self.finish(x))
    }

    /// Computes the last block's output for the rows of several sequences, `[1, rows, d_model]` or a batch to the same
    /// shape.
    pub(crate) fn run_blocks(
        &self,
        mut x: Tensor<B, 3>,
        mut spans: Vec<StackSpan<'_, B>>,
        inputs: StackInputs<'_, B>,
    ) -> Tensor<B, 3> {
        let StackInputs {
            ids,
            adapters,
            mut probe,
        } = inputs;
        let embedded = self.mixes().then(|| x.clone());
        if let Some(relative) = &self.relative_bias {
            for span in &mut spans {
                span.mask.bias = Some(relative.bias(span.past(), span.rows.len));
            }
        }
        let rotates = self.rotary.is_some() || self.layer_rotary.is_some();
        let positions = (rotates && spans.len() > 1).then(|| {
            let places = spans.iter().map(|span| (span.rows, span.past()));
            packed::positions(places, &x.device())
        });
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
                ids: ids.clone(),
                embedded: embedded.clone(),
                adapters,
                probe: match &mut probe {
                    Some(probe) => Some(LayerProbe {
                        layer,
                        probe: &mut **probe,
                    }),
                    None => None,
                },
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
        self.patterns(x, context, Point::Pattern)
    }

    /// Computes the weights of every block's cross-attention without a cache: `[batch, heads, seq, memory]` each. The
    /// context must have a memory.
    pub(crate) fn run_cross_weights(
        &self,
        x: Tensor<B, 3>,
        context: StackContext<'_, B>,
    ) -> Vec<Tensor<B, 4>> {
        self.patterns(x, context, Point::CrossPattern)
    }

    fn patterns(
        &self,
        x: Tensor<B, 3>,
        context: StackContext<'_, B>,
        of: Point,
    ) -> Vec<Tensor<B, 4>> {
        let weights = Vec::with_capacity(self.blocks.len());
        let mut patterns = Patterns { of, weights };
        self.run_probed(x, context, &mut patterns);
        patterns.weights
    }

    /// Applies the final norm, if any, and dropout to rows of the last block's output.
    pub(crate) fn finish(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let x = match &self.norm_final {
            Some(norm) => norm.forward(x),
            None => x,
        };
        dropout(x, self.dropout)
    }

    /// The linear layers except the routers of mixtures, with their paths.
    pub(crate) fn linears(&self) -> impl Iterator<Item = (String, &Linear<B>)> {
        let blocks = self.blocks.iter().enumerate();
        blocks.flat_map(|(layer, block)| {
            let linears = block.linears();
            linears.map(move |(path, linear)| (format!("blocks.{layer}.{path}"), linear))
        })
    }

    /// The linear layers in the order of [`Stack::linears`].
    pub(crate) fn linears_mut(&mut self) -> impl Iterator<Item = &mut Linear<B>> {
        self.blocks.iter_mut().flat_map(Block::linears_mut)
    }

    /// Sets the precision of the matrix products, except those of routers.
    pub(crate) fn set_precision(&mut self, precision: Precision) {
        for block in &mut self.blocks {
            block.set_precision(precision);
        }
    }

    /// True if blocks mix the stack's input into their own.
    pub(crate) fn mixes(&self) -> bool {
        self.blocks.iter().any(|block| block.mix.is_some())
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
    pub(crate) fn past(&self) -> usize {
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
