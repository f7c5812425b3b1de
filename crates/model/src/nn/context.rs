//! Inputs of attentions, blocks and stacks in addition to the hidden states: masks, rotary tables, caches and memories.

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Bool, Int, Tensor};

use emberlm_kernels::{AttentionMask, Backend};

use crate::error::ContextError;
use crate::nn::adapter_rows::AdapterRows;
use crate::nn::cross_attention::MemoryHeads;
use crate::nn::kv_cache::LayerCache;
use crate::nn::mixture::Routing;
use crate::nn::position::RotaryTable;
use crate::nn::probe::LayerProbe;
use crate::nn::tokens::Tokens;

/// Optional inputs of an attention in addition to the hidden states.
#[derive(Debug)]
pub struct AttentionContext<'a, B: Backend> {
    /// Rotation of queries and keys.
    pub rotary: Option<&'a RotaryTable<B>>,
    /// Documents `[batch, seq]`, padding `[batch, keys]` and bias `[heads, seq, keys]`, where `keys` covers the cached
    /// tokens followed by the input. Documents are not supported with a cache. Linear attention supports none of the
    /// three.
    pub mask: AttentionMask<B>,
    /// Keys and values of earlier tokens; those of the input are appended.
    pub cache: Option<&'a mut LayerCache<B>>,
    /// Token ids `[batch, seq]`; required if the attention has value embeddings.
    pub ids: Option<Tensor<B, 2, Int>>,
}

impl<B: Backend> Default for AttentionContext<'_, B> {
    fn default() -> Self {
        Self {
            rotary: None,
            mask: AttentionMask::default(),
            cache: None,
            ids: None,
        }
    }
}

/// Inputs of a block in addition to the hidden states.
#[derive(Debug)]
pub struct BlockContext<'a, B: Backend> {
    /// Inputs of the self-attention.
    pub attention: AttentionContext<'a, B>,
    /// Memory of the cross-attention; required if the block has one, and otherwise not allowed.
    pub memory: Option<BlockMemory<'a, B>>,
    /// The stack's input `[batch, seq, d_model]`; required if the block mixes it into its own.
    pub embedded: Option<Tensor<B, 3>>,
    /// Receives the routing of a mixture of experts.
    pub routings: Option<&'a mut Vec<Routing<B>>>,
}

/// Inputs of a feed-forward sublayer in addition to the hidden states.
#[derive(Debug)]
pub(crate) struct FeedForwardContext<'a, B: Backend> {
    /// Receives the routing of a mixture of experts.
    pub routings: Option<&'a mut Vec<Routing<B>>>,
    /// The adapter of each row, in a ragged pass.
    pub adapters: Option<&'a AdapterRows>,
    /// Sees and replaces tensors.
    pub probe: Option<LayerProbe<'a, B>>,
}

impl<B: Backend> Default for FeedForwardContext<'_, B> {
    fn default() -> Self {
        Self {
            routings: None,
            adapters: None,
            probe: None,
        }
    }
}

impl<'a, B: Backend> From<AttentionContext<'a, B>> for BlockContext<'a, B> {
    fn from(attention: AttentionContext<'a, B>) -> Self {
        Self {
            attention,
            memory: None,
            embedded: None,
            routings: None,
        }
    }
}

/// Inputs of a stack in addition to the hidden states and the cache.
#[derive(Clone, Debug)]
pub struct StackContext<'a, B: BurnBackend> {
    /// Mask of every block's self-attention; see [`AttentionContext::mask`].
    pub mask: AttentionMask<B>,
    /// Memory of the cross-attentions; required if the blocks have them, and otherwise not allowed.
    pub memory: Option<&'a StackMemory<B>>,
    /// Token ids `[batch, seq]`; required if attentions have value embeddings.
    pub ids: Option<Tensor<B, 2, Int>>,
}

impl<B: BurnBackend> Default for StackContext<'_, B> {
    fn default() -> Self {
        AttentionMask::default().into()
    }
}

impl<B: BurnBackend> From<AttentionMask<B>> for StackContext<'_, B> {
    fn from(mask: AttentionMask<B>) -> Self {
        Self {
            mask,
            memory: None,
            ids: None,
        }
    }
}

impl<B: BurnBackend> From<Tokens<B>> for StackContext<'_, B> {
    fn from(tokens: Tokens<B>) -> Self {
        Self {
            ids: Some(tokens.ids),
            ..AttentionMask::of_documents(tokens.documents).into()
        }
    }
}

/// Memory of one block's cross-attention.
#[derive(Clone, Debug)]
pub struct BlockMemory<'a, B: BurnBackend> {
    /// Keys and values, computed by [`crate::nn::CrossAttention::project_memory`].
    pub heads: &'a MemoryHeads<B>,
    /// Padding mask `[batch, memory]`: true at positions that queries may attend to; by default all.
    pub padding: Option<Tensor<B, 2, Bool>>,
}

impl<B: Backend> BlockMemory<'_, B> {
    /// The mask of the cross-attention.
    pub(crate) fn mask(&self) -> AttentionMask<B> {
        AttentionMask {
            padding: self.padding.clone(),
            ..AttentionMask::default()
        }
    }
}

/// Memory of a stack's cross-attentions: the keys and values for every block. It does not depend on the decoder's
/// input, so [`crate::nn::Stack::project_memory`] computes it only once.
#[derive(Clone, Debug)]
pub struct StackMemory<B: BurnBackend> {
    pub(crate) blocks: Vec<MemoryHeads<B>>,
    pub(crate) padding: Option<Tensor<B, 2, Bool>>,
}

impl<B: Backend> StackMemory<B> {
    /// Returns the memory of block `layer`; `None` if there is no such block.
    pub fn block(&self, layer: usize) -> Option<BlockMemory<'_, B>> {
        let heads = self.blocks.get(layer)?;
        let padding = self.padding.clone();
        Some(BlockMemory { heads, padding })
    }

    /// The memory of the batch's sequences with the given numbers, `[selected]`.
    pub(crate) fn select(&self, rows: &Tensor<B, 1, Int>) -> Self {
        let padding = self.padding.clone();
        Self {
            blocks: self.blocks.iter().map(|heads| heads.select(rows)).collect(),
            padding: padding.map(|padding| padding.select(0, rows.clone())),
        }
    }
}

/// Returns an error if `mask` is not empty, because linear attention supports no masks.
pub(crate) fn reject_mask<B: BurnBackend>(mask: &AttentionMask<B>) -> Result<(), ContextError> {
    let given = match mask {
        AttentionMask {
            documents: Some(_), ..
        } => "documents",
        AttentionMask {
            padding: Some(_), ..
        } => "padding",
        AttentionMask { bias: Some(_), .. } => "bias",
        AttentionMask { sinks: Some(_), .. } => "sinks",
        AttentionMask {
            documents: None,
            padding: None,
            bias: None,
            sinks: None,
        } => return Ok(()),
    };
    Err(ContextError::LinearMask { mask: given })
}
