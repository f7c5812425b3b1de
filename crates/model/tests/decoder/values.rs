//! Test inputs, and conversion of tensors to host values.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};

use crate::decoder::spread::{SEQ_LEN, VOCAB_SIZE};

pub const BATCH: usize = 2;

/// Deterministic ids of `BATCH` sequences of `SEQ_LEN` tokens; `factor` selects different ids.
pub fn host_ids(factor: usize) -> Vec<i64> {
    let id = |i: usize| (i * i * factor + 3 * i + factor) % VOCAB_SIZE;
    (0..BATCH * SEQ_LEN).map(|i| id(i) as i64).collect()
}

/// [`host_ids`] as `[BATCH, SEQ_LEN]`.
pub fn tokens<B: Backend>(factor: usize) -> Tensor<B, 2, Int> {
    tensor(host_ids(factor), SEQ_LEN)
}

/// Reshapes ids to `[batch, seq]`.
pub fn tensor<B: Backend>(ids: Vec<i64>, seq: usize) -> Tensor<B, 2, Int> {
    let shape = [ids.len() / seq, seq];
    Tensor::from_data(TensorData::new(ids, shape), &Default::default())
}

/// First tokens of isolated documents of 5 tokens, `[BATCH, SEQ_LEN]`; each sequence's last document is shorter.
pub fn documents<B: Backend>() -> Tensor<B, 2, Int> {
    let first = (0..BATCH * SEQ_LEN).map(|i| (i % SEQ_LEN / 5 * 5) as i64);
    tensor(first.collect(), SEQ_LEN)
}

pub fn host<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}
