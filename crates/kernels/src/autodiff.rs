//! The trait for `Autodiff<B, C>`: backwards written by hand over the inner backend's operations.
//!
//! Attention and the AdamW update have none: the first is differentiated through its composed body for now, the
//! second is never differentiated.

mod activation;
mod head_loss;
mod norm;
mod rotary;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::ops::{FloatTensor, IntTensor};

use crate::{Activation, Backend, HeadLoss, Normalization, RotaryLayout};

impl<B: Backend, C: CheckpointStrategy> Backend for Autodiff<B, C> {
    fn activation(kind: Activation, x: FloatTensor<Self>) -> FloatTensor<Self> {
        activation::activation::<B, C>(kind, x)
    }

    fn normalize(kind: Normalization, x: FloatTensor<Self>) -> FloatTensor<Self> {
        norm::normalize::<B, C>(kind, x)
    }

    fn rotary(
        layout: RotaryLayout,
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        rotary::rotary::<B, C>(layout, x, cos, sin)
    }

    fn head_loss(
        hidden: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        targets: IntTensor<Self>,
    ) -> HeadLoss<Self> {
        head_loss::head_loss::<B, C>(hidden, weight, targets)
    }
}
