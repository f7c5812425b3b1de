//! Text embeddings: mean-pooled final hidden states of a decoder.

use burn::tensor::{Int, Tensor, TensorData};

use emberlm_kernels::Backend;
use emberlm_model::{InputError, Transformer};

use crate::logits::floats;

/// The mean over `tokens` of the hidden states after the final norm, `[d_model]`: the mean of transformers'
/// `last_hidden_state`.
///
/// # Errors
/// There are no tokens, more than the model's context, or ids outside its vocabulary.
pub fn embed<B: Backend>(decoder: &Transformer<B>, tokens: &[u32]) -> Result<Vec<f32>, InputError> {
    decoder.config().check_tokens(tokens)?;
    let ids: Vec<i64> = tokens.iter().map(|&id| i64::from(id)).collect();
    let data = TensorData::new(ids, [1, tokens.len()]);
    let mean = B::run(|| {
        let ids = Tensor::<B, 2, Int>::from_data(data, &decoder.device());
        decoder.mean_hidden(ids).into_data()
    });
    Ok(floats(&mean).into_owned())
}
