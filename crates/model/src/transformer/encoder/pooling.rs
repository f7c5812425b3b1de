//! Pooling: one vector for the states of a text.

use burn::tensor::{Bool, Tensor};
use emberlm_kernels::Backend;
use serde::{Deserialize, Serialize};

/// The pooling of a text's final hidden states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// The mean of all states.
    #[default]
    Mean,
    /// The sum of all states divided by the square root of their number.
    MeanSqrtLength,
    /// The maximum of each element.
    Max,
    /// The first token's state.
    First,
    /// The last token's state.
    Last,
}

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
