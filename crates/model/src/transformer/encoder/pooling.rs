//! Pooling: one vector for the states of a text.

use burn::tensor::{Bool, Tensor};
use emberlm_kernels::Backend;

use crate::config::Pooling;

impl Pooling {
    /// Maps `[texts, seq, d_model]`, without padding, to `[texts, d_model]`.
    pub fn forward<B: Backend>(self, states: Tensor<B, 3>) -> Tensor<B, 2> {
        let [_, seq, _] = states.dims();
        let pooled = match self {
            Self::Mean => states.mean_dim(1),
            Self::MeanSqrtLength => states.sum_dim(1) / (seq as f64).sqrt(),
            Self::Max => states.max_dim(1),
            Self::First => states.narrow(1, 0, 1),
            Self::Last => states.narrow(1, seq - 1, 1),
        }; // [texts, 1, d_model]
        pooled.squeeze_dim(1)
    }

    /// [`Pooling::forward`] of texts whose padding is false in `padding` `[texts, seq]` and follows the text. Only the
    /// mean and the first state leave padding out.
    pub(super) fn forward_padded<B: Backend>(
        self,
        states: Tensor<B, 3>,
        padding: Option<Tensor<B, 2, Bool>>,
    ) -> Tensor<B, 2> {
        match (self, padding) {
            (Self::Mean, Some(padding)) => {
                let kept: Tensor<B, 3> = padding.float().unsqueeze_dim(2); // [texts, seq, 1]
                let count = kept.clone().sum_dim(1);
                let sum = (states * kept).sum_dim(1); // [texts, 1, d_model]
                (sum / count).squeeze_dim(1)
            }
            (_, _) => self.forward(states),
        }
    }
}
