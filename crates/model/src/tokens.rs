//! Token ids as a decoder takes them, with the documents that they are of.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

use crate::checked::DecoderConfig;
use crate::config::AttentionKind;
use crate::error::ConfigError;

/// A target that is not to be predicted: its loss is 0, and nothing is learnt from it.
pub const IGNORED: i32 = -1;

/// Rows of token ids.
#[derive(Clone, Debug)]
pub struct Tokens<B: Backend> {
    /// `[batch, seq]`.
    pub ids: Tensor<B, 2, Int>,
    /// For every token the place in its row where its document begins, `[batch, seq]`: it sees no token before that, and
    /// stands at the place counted from there: a row gives the same results as its documents by themselves. Without it, a row is one
    /// document. The model must be one that [`DecoderConfig::check_documents`] accepts.
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

impl DecoderConfig {
    /// Returns true if the model can keep the documents of a row apart ([`Tokens::documents`]).
    ///
    /// # Errors
    /// The field that stands against it: linear attention, whose running sums are of all tokens so far.
    pub fn check_documents(&self) -> Result<(), ConfigError> {
        match self.attention() {
            AttentionKind::Softmax { .. } => Ok(()),
            AttentionKind::Linear { .. } => {
                let rule = "must be \"softmax\" for documents to be isolated: linear attention's sums cannot forget a token";
                Err(ConfigError::new("attention.kind", "\"linear\"", rule))
            }
        }
    }
}
