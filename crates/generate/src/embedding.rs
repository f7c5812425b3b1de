//! A text as one vector: the mean of the states that a decoder's head predicts from.

use burn::tensor::{Int, Tensor, TensorData};

use emberlm_kernels::Backend;
use emberlm_model::{Decoder, InputError};

use crate::logits::floats;

/// The mean over `tokens` of the states after the last norm, `[d_model]`, as the mean of transformers'
/// `last_hidden_state` is.
///
/// # Errors
/// No tokens, more than the model's context, or an id that it does not know.
pub fn embed<B: Backend>(decoder: &Decoder<B>, tokens: &[u32]) -> Result<Vec<f32>, InputError> {
    decoder.config().check_tokens(tokens)?;
    let ids: Vec<i64> = tokens.iter().map(|&id| i64::from(id)).collect();
    let data = TensorData::new(ids, [1, tokens.len()]);
    let mean = B::run(|| {
        let ids = Tensor::<B, 2, Int>::from_data(data, &decoder.device());
        decoder.mean_hidden(ids).into_data()
    });
    Ok(floats(&mean).into_owned())
}
