//! A decoder's input: token ids and document boundaries.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

/// Target of a token that is excluded from the loss: its loss and gradient are 0.
pub const IGNORED: i32 = -1;

/// A batch of token sequences.
#[derive(Clone, Debug)]
pub struct Tokens<B: Backend> {
    /// Token ids `[batch, seq]`.
    pub ids: Tensor<B, 2, Int>,
    /// Index, in its sequence, of the first token of each token's document, `[batch, seq]`. Tokens attend only to
    /// tokens of their document, and positions count from its start, so a packed sequence gives the same results as
    /// its documents processed separately. `None` if every sequence is one document. Not supported by linear
    /// attention ([`crate::DecoderConfig::check_documents`]).
    pub documents: Option<Tensor<B, 2, Int>>,
}

impl<B: Backend> From<Tensor<B, 2, Int>> for Tokens<B> {
    fn from(ids: Tensor<B, 2, Int>) -> Self {
        let documents = None;
        Self { ids, documents }
    }
}

impl<B: Backend> Tokens<B> {
    /// Returns `[batch, seq]`.
    pub fn dims(&self) -> [usize; 2] {
        self.ids.dims()
    }
}
