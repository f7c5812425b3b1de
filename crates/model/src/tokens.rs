//! Token ids as a decoder takes them, with the documents that they are of.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

/// A target that is not to be predicted: its loss is 0, and nothing is learnt from it.
pub const IGNORED: i32 = -1;

/// Rows of token ids.
#[derive(Clone, Debug)]
pub struct Tokens<B: Backend> {
    /// `[batch, seq]`.
    pub ids: Tensor<B, 2, Int>,
    /// For every token the place in its row where its document begins, `[batch, seq]`: it sees no token before that, and
    /// stands at the place counted from there. Without it, a row is one document.
    pub documents: Option<Tensor<B, 2, Int>>,
}

impl<B: Backend> From<Tensor<B, 2, Int>> for Tokens<B> {
    fn from(ids: Tensor<B, 2, Int>) -> Self {
        let documents = None;
        Self { ids, documents }
    }
}

impl<B: Backend> Tokens<B> {
    /// `[batch, seq]`.
    pub fn dims(&self) -> [usize; 2] {
        self.ids.dims()
    }
}
