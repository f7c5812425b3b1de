//! The weights that an attention applies to the values.

use burn::tensor::Tensor;

use emberlm_kernels::{AttentionMask, Backend, ops};

use super::Attention;
use crate::error::ContextError;
use crate::nn::position::RotaryTable;

impl<B: Backend> Attention<B> {
    /// Computes the weights that [`Attention::forward`] without a cache applies to the values:
    /// `[batch, heads, seq, seq]`.
    ///
    /// # Errors
    /// Those of [`Attention::forward`], or the attention is a delta net, which has none.
    pub fn weights(
        &self,
        x: Tensor<B, 3>,
        rotary: Option<&RotaryTable<B>>,
        mask: AttentionMask<B>,
    ) -> Result<Tensor<B, 4>, ContextError> {
        self.check_weights(&mask)?;
        Ok(self.run_weights(x, rotary, mask))
    }

    /// Returns an error if the attention has no weights, or does not support the mask.
    pub(crate) fn check_weights(&self, mask: &AttentionMask<B>) -> Result<(), ContextError> {
        match self.delta {
            Some(_) => Err(ContextError::NoWeights),
            None => self.check(mask, false, true),
        }
    }

    /// [`Attention::weights`] with a mask that has been checked.
    pub(crate) fn run_weights(
        &self,
        x: Tensor<B, 3>,
        rotary: Option<&RotaryTable<B>>,
        mask: AttentionMask<B>,
    ) -> Tensor<B, 4> {
        let seq = x.dims()[1];
        let angles = rotary.map(|table| table.angles(0, seq));
        let mask = self.biased(mask, 0, seq);
        let qkv = self.normed_columns(self.qkv.forward(x, None));
        let (q, k, _) = self.split(&qkv, angles.as_ref());
        self.softmax(q, k, mask)
    }

    /// The weights of prepared queries and keys.
    pub(super) fn softmax(
        &self,
        q: Tensor<B, 4>,
        k: Tensor<B, 4>,
        mask: AttentionMask<B>,
    ) -> Tensor<B, 4> {
        match &self.features {
            Some(features) => ops::linear_attention_weights(q, k, features.rows()),
            None => ops::attention_weights(q, k, mask, self.options),
        }
    }
}
