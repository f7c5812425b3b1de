//! The inputs of attentions, blocks and stacks besides their hidden states.

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Bool, Tensor};

use emberlm_kernels::{AttentionMask, Backend};

use crate::cross_attention::MemoryHeads;
use crate::error::ContextError;
use crate::kv_cache::LayerCache;
use crate::position::RotaryTable;

/// The inputs of an attention besides its hidden states, each optional.
#[derive(Debug)]
pub struct AttentionContext<'a, B: Backend> {
    /// The rotation of queries and keys.
    pub rotary: Option<&'a RotaryTable<B>>,
    /// Documents `[batch, seq]`, padding `[batch, keys]` and bias `[heads, seq, keys]`, where `keys` counts the tokens in
    /// the cache and then those of the input. Documents are refused with a cache, and each of them by linear attention.
    pub mask: AttentionMask<B>,
    /// The keys and values that the input continues; its own are appended.
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

/// The inputs of a block besides its hidden states.
#[derive(Debug)]
pub struct BlockContext<'a, B: Backend> {
    /// Of the self-attention.
    pub attention: AttentionContext<'a, B>,
    /// Of the cross-attention; none exactly where the block has none.
    pub memory: Option<BlockMemory<'a, B>>,
}

impl<'a, B: Backend> From<AttentionContext<'a, B>> for BlockContext<'a, B> {
    fn from(attention: AttentionContext<'a, B>) -> Self {
        Self {
            attention,
            memory: None,
        }
    }
}

/// The inputs of a stack besides its hidden states and its cache.
#[derive(Clone, Debug)]
pub struct StackContext<'a, B: BurnBackend> {
    /// Of every block's self-attention, as [`AttentionContext::mask`].
    pub mask: AttentionMask<B>,
    /// Of the blocks' cross-attentions; none exactly where they have none.
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
    /// Its keys and values, of [`crate::nn::CrossAttention::project_memory`].
    pub heads: &'a MemoryHeads<B>,
    /// The padding mask, `[batch, memory]`: true where the memory may be seen. Without it all of it is.
    pub padding: Option<Tensor<B, 2, Bool>>,
}

/// The memory of a stack's cross-attentions: keys and values of every block. They are the same for every input, so a decoder
/// that generates computes them once. [`crate::nn::Stack::project_memory`] makes it.
#[derive(Clone, Debug)]
pub struct StackMemory<B: BurnBackend> {
    pub(crate) blocks: Vec<MemoryHeads<B>>,
    pub(crate) padding: Option<Tensor<B, 2, Bool>>,
}

impl<B: Backend> StackMemory<B> {
    /// The memory of block `layer`; none where there is no such block.
    pub fn block(&self, layer: usize) -> Option<BlockMemory<'_, B>> {
        let heads = self.blocks.get(layer)?;
        let padding = self.padding.clone();
        Some(BlockMemory { heads, padding })
    }
}

/// Refuses every mask, for linear attention.
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
