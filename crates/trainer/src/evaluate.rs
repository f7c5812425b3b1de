//! The loss over a split.

use burn::tensor::ElementConversion;
use emberlm_data::{TokenSplit, eval_batches};
use emberlm_kernels::Backend;
use emberlm_model::Decoder;

use crate::error::TrainError;
use crate::loader::to_tensors;

/// What an evaluation found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Mean cross-entropy in nats per token.
    pub loss: f64,
    /// Tokens predicted.
    pub tokens: u64,
}

/// Predicts every token of a split but its first, in windows of `seq_len`, at most the model's context; of at most
/// `max_tokens`.
///
/// # Errors
/// The split cannot be read, or has not even two tokens.
pub fn evaluate<B: Backend>(
    decoder: &Decoder<B>,
    split: &TokenSplit,
    seq_len: usize,
    batch: usize,
    max_tokens: Option<u64>,
) -> Result<Evaluation, TrainError> {
    let device = decoder.device();
    let batches = eval_batches(split, seq_len, batch, max_tokens)?;
    let (mut sum, mut tokens) = (0.0f64, 0u64);
    for batch in batches {
        let batch = to_tensors::<B>(batch?, &device);
        tokens += batch.count() as u64;
        let loss = decoder.loss_sum(batch.tokens, batch.targets);
        sum += loss.into_scalar().elem::<f64>();
    }
    let loss = sum / tokens as f64;
    Ok(Evaluation { loss, tokens })
}
