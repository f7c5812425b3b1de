//! The performance-critical operations of a transformer language model, as an extension trait over Burn's
//! backends.
//!
//! [`Backend`] is the trait. Every operation has a reference implementation in plain tensor operations
//! ([`mod@reference`]), so an `impl` that only names one of the reference attentions is a complete port.
//! Attention is a separate type ([`AttentionKernels`]) because the state between its forward and backward passes
//! differs between backends. `autodiff` implements the trait once for `Autodiff<B, C>` with handwritten backward
//! passes. The model calls [`ops`], which takes and returns typed tensors and also has the operations that are
//! composed on every backend: linear attention and the attention weights.
//!
//! | type | purpose |
//! |---|---|
//! | [`Backend`], [`TrainingBackend`] | Burn's backends with the model's operations; the second is differentiable |
//! | [`ops`] | the operations on typed tensors |
//! | [`Activation`], [`Normalization`], [`RotaryLayout`] | the variants of an operation |
//! | [`AttentionOptions`], [`HeadLossOptions`] | the options of attention, and of the head fused with cross-entropy |
//! | [`Precision`] | the rounding of matrix product operands |
//! | [`BaseOps`] | the operations that the reference implementations use in addition to Burn's |
//! | `meter` | with a GPU feature: counters of launches, synchronizations, bytes and products |
//! | `cublas` | with the feature `cuda`: the library of large matrix products |
//! | `nccl` | with the feature `cuda`: exchanges between the GPUs of several processes |
//! | [`AddressedVector`] | a vector whose memory MPI or NCCL accesses by its address |
//! | [`cpu`] | CPU kernels over slices |
//!
//! ```
//! # #[cfg(feature = "flex")] {
//! use burn::backend::Flex;
//! use burn::tensor::{Tensor, Tolerance};
//! use emberlm_kernels::{Normalization, ops};
//!
//! let x = Tensor::<Flex, 2>::from_data([[3.0, 4.0]], &Default::default());
//! // x / √mean(x²), and the mean is 12.5.
//! let normalized = ops::normalize(Normalization::Rms { epsilon: 0.0 }, x.clone(), None, None);
//! let expected = x / 12.5_f32.sqrt();
//! expected.into_data().assert_approx_eq::<f32>(&normalized.into_data(), Tolerance::default());
//! # }
//! ```
//!
//! Without the `burn` feature, only [`cpu`] is compiled. Its tests then build in seconds, which makes it
//! practical to run them with other compiler flags.

// wgpu's types nest deeper than the compiler's default limit.
#![recursion_limit = "256"]

mod activation;
mod adamw;
#[cfg(feature = "burn")]
mod addressed;
mod attention;
#[cfg(feature = "burn")]
mod attention_kernels;
#[cfg(feature = "burn")]
mod autodiff;
#[cfg(feature = "burn")]
mod backend;
#[cfg(feature = "burn")]
mod backend_ops;
#[cfg(feature = "burn")]
mod backends;
#[cfg(feature = "burn")]
mod base_ops;
pub mod cpu;
#[cfg(feature = "burn")]
mod delta_rule;
#[cfg(feature = "burn")]
mod device;
#[cfg(feature = "flex")]
mod flex;
#[cfg(feature = "gpu")]
mod gpu;
mod head_loss;
#[cfg(feature = "burn")]
mod linear_attention;
#[cfg(feature = "mimalloc")]
pub mod memory;
#[cfg(feature = "mpi")]
mod mpi_buffer;
#[cfg(feature = "mpi")]
mod mpi_communicator;
mod norm;
#[cfg(feature = "burn")]
pub mod ops;
mod packed;
#[cfg(feature = "burn")]
mod packed_tokens;
#[cfg(feature = "burn")]
mod packed_weight;
mod precision;
#[cfg(feature = "burn")]
mod recurrences;
#[cfg(feature = "burn")]
pub mod reference;
mod rotary;
#[cfg(feature = "burn")]
mod row_ops;
#[cfg(feature = "burn")]
mod short_convolution;
#[cfg(feature = "burn")]
mod state;

pub use activation::Activation;
pub use adamw::{AdamWStep, SQUARES_CHUNK};
#[cfg(feature = "burn")]
pub use addressed::AddressedVector;
pub use attention::{AttentionOptions, KEY_BLOCK, Reach};
#[cfg(feature = "burn")]
pub use attention_kernels::{
    AttentionGradients, AttentionKernels, AttentionMask, SelfAttention, SelfAttentionGradients,
};
#[cfg(feature = "burn")]
pub use autodiff::{GradientHook, TrainingBackend};
#[cfg(feature = "burn")]
pub use backend::Backend;
#[cfg(feature = "burn")]
pub use base_ops::BaseOps;
#[cfg(feature = "burn")]
pub use delta_rule::{
    DELTA_RULE_CHUNK, DeltaRuleGradients, DeltaRuleHeads, DeltaRuleInputs, DeltaRuleOutputs,
};
#[cfg(feature = "burn")]
pub use device::{DeviceMemory, VectorMemory};
#[cfg(feature = "cuda")]
pub use gpu::{cublas, nccl};
#[cfg(feature = "gpu")]
pub use gpu::{meter, products_by_every_kernel};
pub use head_loss::HeadLossOptions;
#[cfg(feature = "burn")]
pub use linear_attention::{LINEAR_ATTENTION_CHUNK, LinearAttentionState};
#[cfg(feature = "mpi")]
pub use mpi_communicator::SharedCommunicator;
pub use norm::{ColumnGroups, ColumnNorms, Normalization};
pub use packed::{PackedError, PackedFormat};
#[cfg(feature = "burn")]
pub use packed_tokens::{PackedTokens, has_rows};
#[cfg(feature = "burn")]
pub use packed_weight::PackedWeight;
pub use precision::Precision;
#[cfg(feature = "burn")]
pub use recurrences::Recurrences;
pub use rotary::RotaryLayout;
#[cfg(feature = "burn")]
pub use row_ops::RowOps;
#[cfg(feature = "burn")]
pub use short_convolution::{ConvolutionGradients, ConvolutionInputs};
#[cfg(feature = "burn")]
pub use state::{
    AdamWInputs, AdamWOutputs, AddRowsGradients, ColumnNormGradients, ColumnNormInputs,
    GatedGradients, HeadLossGradients, HeadLossInputs, KeyValueCache, LinearGradients,
    LinearInputs, LowRankUpdate, NormGradients, RotaryAngles,
};
