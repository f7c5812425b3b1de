//! A decoder's input: token ids and document boundaries.

use burn::tensor::backend::Backend;
use burn::tensor::{Device, Int, Tensor, TensorData};

/// Element of a tensor of targets at a token that is excluded from the loss: its loss and gradient are 0. In a batch on the
/// host it is `u32::MAX` (`IGNORED` of `emberlm_data`), which [`id_tensor`] converts.
pub const IGNORED_ELEMENT: i32 = -1;

/// Moves token ids or targets to a device as a tensor of `shape`. `u32::MAX`, an ignored target, becomes
/// [`IGNORED_ELEMENT`].
///
/// ```
/// use burn::backend::Flex;
/// use emberlm_model::{IGNORED_ELEMENT, id_tensor};
///
/// let targets = id_tensor::<Flex>(&[7, u32::MAX], [1, 2], &Default::default());
/// assert_eq!(targets.into_data().iter::<i32>().collect::<Vec<_>>(), [7, IGNORED_ELEMENT]);
/// ```
///
/// # Panics
/// The number of ids is not that of `shape`.
pub fn id_tensor<B: Backend>(
    ids: &[u32],
    shape: [usize; 2],
    device: &Device<B>,
) -> Tensor<B, 2, Int> {
    // The bits of `u32::MAX` are those of -1.
    let ids: Vec<i32> = ids.iter().map(|&id| id as i32).collect();
    Tensor::from_data(TensorData::new(ids, shape), device)
}

/// A batch of token sequences.
#[derive(Clone, Debug)]
pub struct Tokens<B: Backend> {
    /// Token ids `[batch, seq]`.
    pub ids: Tensor<B, 2, Int>,
    /// Index, in its sequence, of the first token of each token's document, `[batch, seq]`. Tokens attend only to
    /// tokens of their document, and positions count from its start, so a packed sequence gives the same results as
    /// its documents processed separately. `None` if every sequence is one document. Not supported by linear
    /// attention ([`crate::TransformerConfig::check_documents`]).
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
