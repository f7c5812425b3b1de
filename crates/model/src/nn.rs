//! The components of a model, each usable separately: `Config` → `init(&device)` → `forward`.
//!
//! | component | equation |
//! |---|---|
//! | [`Linear`] | `x W + b` |
//! | [`Norm`] | `gain · normalized(x) + bias` |
//! | [`Attention`] | `out(softmax(scale · q kᵀ) v)` |
//! | [`CrossAttention`] | the same with queries from one sequence, keys and values from another |
//! | [`FeedForward`] | `down(f(up(x)))` or `down(f(gate(x)) · up(x))` |
//! | [`Mixture`] | feed-forward layers of which a router chooses some for each token |
//! | [`Block`] | attention, optional cross-attention and feed-forward layer around the residual stream |
//! | [`Stack`] | blocks and a final norm |
//! | [`Embeddings`] | `scale · tokens[id] + positions[i]` |
//! | [`LmHead`] | `hidden · Wᵀ` |
//!
//! Standalone components draw their initial weights from the backend's random state, which `B::seed` sets.

pub use crate::attention::{Attention, AttentionConfig, Mechanism};
pub use crate::block::{Block, BlockConfig};
pub use crate::context::{AttentionContext, BlockContext, BlockMemory, StackContext, StackMemory};
pub use crate::cross_attention::{CrossAttention, CrossAttentionConfig, MemoryHeads};
pub use crate::cross_sublayer::CrossSublayer;
pub use crate::embeddings::{Embeddings, EmbeddingsConfig};
pub use crate::feed_forward::{FeedForward, FeedForwardConfig, FeedForwardLayer};
pub use crate::kv_cache::LayerCache;
pub use crate::linear::{Linear, LinearConfig, LinearWeight};
pub use crate::lm_head::{LmHead, LmHeadConfig};
pub use crate::mixture::{Mixture, MixtureConfig, Routing, SharedExpert};
pub use crate::norm::{Norm, NormConfig};
pub use crate::position::{AddedPositions, AddedPositionsConfig, RotaryConfig, RotaryTable};
pub use crate::stack::{LayerRotaryConfig, Stack, StackConfig};
pub use emberlm_kernels::{AttentionMask, Reach};
