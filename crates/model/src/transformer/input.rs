//! The input of a model of any kind.

use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor};

use crate::nn::tokens::Tokens;

/// A batch of sequences of one length.
#[derive(Clone, Debug)]
pub struct ModelInput<B: Backend> {
    /// Token ids, `[batch, seq]`: of a decoder, of an encoder's texts, or of the sources of an encoder–decoder.
    pub tokens: Tokens<B>,
    /// The segment of each token, `[batch, seq]`; by default 0.
    pub segments: Option<Tensor<B, 2, Int>>,
    /// False at padding tokens, `[batch, seq]`; no token attends to them. Padding follows the text.
    pub padding: Option<Tensor<B, 2, Bool>>,
    /// The input of an encoder–decoder's decoder, `[batch, target]`.
    pub target: Option<Tensor<B, 2, Int>>,
}

impl<B: Backend> From<Tokens<B>> for ModelInput<B> {
    fn from(tokens: Tokens<B>) -> Self {
        Self {
            tokens,
            segments: None,
            padding: None,
            target: None,
        }
    }
}

impl<B: Backend> From<Tensor<B, 2, Int>> for ModelInput<B> {
    fn from(ids: Tensor<B, 2, Int>) -> Self {
        Tokens::from(ids).into()
    }
}
