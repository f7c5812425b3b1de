//! The few operations of a language model whose speed or exactness decides, as one extension trait over Burn's
//! backends.
//!
//! Map: [`Backend`] is the trait, with a reference implementation of plain tensor operations for each operation
//! ([`mod@reference`]), so that an `impl` that names one of its attentions is a complete port. A backend's attention is a
//! type ([`AttentionKernels`]), whose backward pass takes the state that its forward pass made. `autodiff` implements it once for
//! `Autodiff<B, C>` with backwards written by hand. [`ops`] is how the model calls it: typed tensors in and out, and there
//! also what is composed on every backend, linear attention and the attentions' weights.
//!
//! | type | purpose |
//! |---|---|
//! | [`Backend`], [`TrainingBackend`] | Burn's backends with the language model's operations; the second is differentiable |
//! | [`ops`] | the operations on typed tensors |
//! | [`Activation`], [`Normalization`], [`RotaryLayout`] | the variants of an operation |
//! | [`AttentionOptions`], [`HeadLossOptions`] | the options of attention, and of the head fused with cross-entropy |
//! | [`Precision`] | how the factors of matrix products are rounded |
//! | [`cpu`] | the CPU's kernels over slices |
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
//! Without the feature `burn` there is only [`cpu`], whose tests then compile in seconds under another compiler's flags.

// wgpu's types nest deeper than the compiler's default limit.
#![recursion_limit = "256"]

mod activation;
mod adamw;
mod attention;
#[cfg(feature = "burn")]
mod attention_kernels;
#[cfg(feature = "burn")]
mod autodiff;
#[cfg(feature = "burn")]
mod backend;
#[cfg(feature = "burn")]
mod backends;
pub mod cpu;
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
mod norm;
#[cfg(feature = "burn")]
pub mod ops;
mod packed;
#[cfg(feature = "burn")]
mod packed_weight;
mod precision;
#[cfg(feature = "burn")]
pub mod reference;
mod rotary;
#[cfg(feature = "burn")]
mod state;

pub use activation::Activation;
pub use adamw::AdamWStep;
pub use attention::{AttentionOptions, KEY_BLOCK, Reach};
#[cfg(feature = "burn")]
pub use attention_kernels::{
    AttentionGradients, AttentionKernels, AttentionMask, SelfAttention, SelfAttentionGradients,
};
#[cfg(feature = "burn")]
pub use backend::{Backend, TrainingBackend};
#[cfg(feature = "burn")]
pub use device::DeviceMemory;
pub use head_loss::HeadLossOptions;
#[cfg(feature = "burn")]
pub use linear_attention::{LINEAR_ATTENTION_CHUNK, LinearAttentionState};
pub use norm::Normalization;
pub use packed::PackedFormat;
#[cfg(feature = "burn")]
pub use packed_weight::PackedWeight;
pub use precision::Precision;
pub use rotary::RotaryLayout;
#[cfg(feature = "burn")]
pub use state::{
    AddRowsGradients, GatedGradients, HeadLossGradients, LinearGradients, LinearInputs,
    NormGradients, RotaryAngles,
};
