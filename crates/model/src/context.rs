//! Inputs of attentions, blocks and stacks other than their hidden states.

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Bool, Tensor};

use emberlm_kernels::{AttentionMask, Backend};

use crate::cross_attention::MemoryHeads;
use crate::error::ContextError;
use crate::kv_cache::LayerCache;
use crate::mixture::Routing;
use crate::position::RotaryTable;

/// Inputs of an attention other than its hidden states; each is optional.
#[derive(Debug)]
pub struct AttentionContext<'a, B: Backend> {
    /// The rotation of queries and keys.
    pub rotary: Option<&'a RotaryTable<B>>,
    /// Documents `[batch, seq]`, padding `[batch, keys]` and bias `[heads, seq, keys]`; `keys` counts the cached tokens
    /// and then the input's. Documents are not supported with a cache. Linear attention supports none of the three.
    pub mask: AttentionMask<B>,
    /// The keys and values of earlier tokens; the input's keys and values are appended.
    pub cache: Option<&'a mut LayerCache<B>>,
}

impl<B: Backend> Default for AttentionContext<'_, B> {
    fn default() -> Self {
        Self {
            rotary: None,
            mask: AttentionMask::default(),
            cache: None,
        }
    }
}

/// Inputs of a block other than its hidden states.
#[derive(Debug)]
pub struct BlockContext<'a, B: Backend> {
    /// Inputs of the self-attention.
    pub attention: AttentionContext<'a, B>,
    /// Memory of the cross-attention; `None` exactly if the block has no cross-attention.
    pub memory: Option<BlockMemory<'a, B>>,
    /// Receives the routing of a mixture of experts.
    pub routings: Option<&'a mut Vec<Routing<B>>>,
}

impl<'a, B: Backend> From<AttentionContext<'a, B>> for BlockContext<'a, B> {
    fn from(attention: AttentionContext<'a, B>) -> Self {
        Self {
            attention,
            memory: None,
            routings: None,
        }
    }
}

/// Inputs of a stack other than its hidden states and its cache.
#[derive(Clone, Debug)]
pub struct StackContext<'a, B: BurnBackend> {
    /// Mask of every block's self-attention; see [`AttentionContext::mask`].
    pub mask: AttentionMask<B>,
    /// Memory of the blocks' cross-attentions; `None` exactly if they have none.
    pub memory: Option<&'a StackMemory<B>>,
}

impl<B: BurnBackend> Default for StackContext<'_, B> {
    fn default() -> Self {
        AttentionMask::default().into()
    }
}

impl<B: BurnBackend> From<AttentionMask<B>> for StackContext<'_, B> {
    fn from(mask: AttentionMask<B>) -> Self {
        Self { mask, memory: None }
    }
}

/// The memory of one block's cross-attention.
#[derive(Clone, Debug)]
pub struct BlockMemory<'a, B: BurnBackend> {
    /// Its keys and values, computed by [`crate::nn::CrossAttention::project_memory`].
    pub heads: &'a MemoryHeads<B>,
    /// The padding mask `[batch, memory]`: true at positions that can be attended to. Without it, all can.
    pub padding: Option<Tensor<B, 2, Bool>>,
}

/// The memory of a stack's cross-attentions: keys and values for every block. It does not depend on the decoder's
/// input, so generation computes it once, with [`crate::nn::Stack::project_memory`].
#[derive(Clone, Debug)]
pub struct StackMemory<B: BurnBackend> {
    pub(crate) blocks: Vec<MemoryHeads<B>>,
    pub(crate) padding: Option<Tensor<B, 2, Bool>>,
}

impl<B: Backend> StackMemory<B> {
    /// The memory of block `layer`; `None` if there is no such block.
    pub fn block(&self, layer: usize) -> Option<BlockMemory<'_, B>> {
        let heads = self.blocks.get(layer)?;
        let padding = self.padding.clone();
        Some(BlockMemory { heads, padding })
    }
}

/// Returns an error for any mask: linear attention supports none.
pub(crate) fn no_mask<B: BurnBackend>(mask: &AttentionMask<B>) -> Result<(), ContextError> {
    let given = match mask {
        AttentionMask {
            documents: Some(_), ..
        } => "documents",
        AttentionMask {
            padding: Some(_), ..
        } => "padding",
        AttentionMask { bias: Some(_), .. } => "bias",
        AttentionMask {
            documents: None,
            padding: None,
            bias: None,
        } => return Ok(()),
    };
    Err(ContextError::LinearMask { mask: given })
}
