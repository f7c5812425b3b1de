//! The trait for `Autodiff<B, C>`: backwards written by hand over the inner backend's operations.
//!
//! The AdamW update has none: it is never differentiated.

mod attention;
mod head_loss;
mod kept_input;
mod rotary;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::ops::{FloatTensor, IntTensor};

use crate::{Activation, AttentionOptions, Backend, HeadLossOptions, Normalization, RotaryLayout};
use kept_input::kept_input;

impl<B: Backend, C: CheckpointStrategy> Backend for Autodiff<B, C> {
    fn activation(kind: Activation, x: FloatTensor<Self>) -> FloatTensor<Self> {
        kept_input::<_, B, C>(kind, x, B::activation, B::activation_backward)
    }

    fn normalize(kind: Normalization, x: FloatTensor<Self>) -> FloatTensor<Self> {
        kept_input::<_, B, C>(kind, x, B::normalize, B::normalize_backward)
    }

    fn rotary(
        layout: RotaryLayout,
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        rotary::rotary::<B, C>(layout, x, cos, sin)
    }

    fn attention(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        documents: Option<IntTensor<Self>>,
        options: AttentionOptions,
    ) -> FloatTensor<Self> {
        attention::attention::<B, C>(q, k, v, documents, options)
    }

    fn head_loss(
        hidden: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        targets: IntTensor<Self>,
        options: HeadLossOptions,
    ) -> FloatTensor<Self> {
        head_loss::head_loss::<B, C>(hidden, weight, targets, options)
    }
}
