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
//! | [`ResidualMix`] | `a x + b x₀` |
//! | [`DeltaNet`] | `rms(delta_rule(q, k, v)) · silu(gate)` |
//! | [`LatentProjections`] | queries, keys and values from latent vectors |
//! | [`ValueEmbedding`] | `v + 2 σ(x W) e` |
//! | [`Embeddings`] | `scale · tokens[id] + positions[i]` |
//! | [`LmHead`] | `hidden · Wᵀ` |
//!
//! Standalone components draw their initial weights from the backend's random state, which `B::seed` sets.

pub(crate) mod adapter_rows;
pub(crate) mod alibi;
pub(crate) mod attention;
pub(crate) mod block;
pub(crate) mod context;
pub(crate) mod cross_attention;
pub(crate) mod cross_sublayer;
pub(crate) mod delta_net;
pub(crate) mod dropout;
pub(crate) mod embeddings;
pub(crate) mod features;
pub(crate) mod feed_forward;
pub(crate) mod heads;
pub(crate) mod init;
pub mod kv_cache;
pub(crate) mod latent;
pub(crate) mod linear;
pub(crate) mod lm_head;
pub(crate) mod low_rank;
pub(crate) mod mixture;
pub(crate) mod norm;
pub(crate) mod packed;
pub(crate) mod packed_rows;
pub(crate) mod position;
pub mod probe;
pub(crate) mod relative_bias;
pub(crate) mod residual_mix;
pub(crate) mod router_loss;
pub(crate) mod routing;
pub(crate) mod stack;
pub(crate) mod token_table;
pub mod tokens;
pub(crate) mod value_embedding;

pub use attention::{Attention, AttentionConfig, Mechanism};
pub use block::{Block, BlockConfig};
pub use context::{AttentionContext, BlockContext, BlockMemory, StackContext, StackMemory};
pub use cross_attention::{CrossAttention, CrossAttentionConfig, MemoryHeads};
pub use cross_sublayer::CrossSublayer;
pub use delta_net::{DeltaNet, DeltaNetConfig, DeltaState};
pub use embeddings::{Embeddings, EmbeddingsConfig};
pub use emberlm_kernels::{AttentionMask, Reach};
pub use feed_forward::{FeedForward, FeedForwardConfig, FeedForwardLayer};
pub use kv_cache::LayerCache;
pub use latent::{LatentConfig, LatentProjections};
pub use linear::{Linear, LinearConfig, LinearWeight};
pub use lm_head::{LmHead, LmHeadConfig};
pub use mixture::{Mixture, MixtureConfig, Routing, SharedExpert};
pub use norm::{Norm, NormConfig};
pub use position::{AddedPositions, AddedPositionsConfig, RotaryConfig, RotaryTable};
pub use relative_bias::{RelativeBias, RelativeConfig};
pub use residual_mix::ResidualMix;
pub use routing::RoutingRule;
pub use stack::{DeltaLayersConfig, LayerRotaryConfig, Stack, StackConfig};
pub use value_embedding::{ValueEmbedding, ValueEmbeddingConfig};
