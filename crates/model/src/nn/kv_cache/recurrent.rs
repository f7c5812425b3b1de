//! The state of attentions that summarize all earlier tokens.

use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Int, Tensor};
use emberlm_kernels::LinearAttentionState;

use crate::nn::delta_net::DeltaState;

/// A state whose size does not depend on the number of tokens, and from which no token can be removed.
#[derive(Clone, Debug)]
pub(crate) enum RecurrentState<B: BurnBackend> {
    /// Linear attention's sums.
    Sums(LinearAttentionState<B>),
    /// A gated delta net's memory and the inputs of its convolutions.
    Delta(DeltaState<B>),
}

impl<B: BurnBackend> RecurrentState<B> {
    pub(super) fn device(&self) -> Device<B> {
        match self {
            Self::Sums(state) => state.sums.device(),
            Self::Delta(state) => state.device(),
        }
    }

    /// The states of the sequences with the given numbers, `[selected]`.
    pub(super) fn select(self, rows: &Tensor<B, 1, Int>) -> Self {
        match self {
            Self::Sums(state) => Self::Sums(LinearAttentionState {
                sums: state.sums.select(0, rows.clone()),
                peak: state.peak.select(0, rows.clone()),
            }),
            Self::Delta(state) => Self::Delta(state.select(rows)),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let of = |tensor: &Tensor<B, 4>| tensor.shape().num_elements() * tensor.dtype().size();
        match self {
            Self::Sums(state) => of(&state.sums) + of(&state.peak),
            Self::Delta(state) => state.bytes(),
        }
    }
}
