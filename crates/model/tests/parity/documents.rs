//! Compares attention with isolated documents on one backend with flex. The kernel tests compare flex with plain loops.

use burn::tensor::{Device, Tensor, TensorData};
use burn_flex::Flex;
use emberlm_kernels::{AttentionMask, AttentionOptions, Backend, Precision, Reach, ops};

use crate::parity::checks::{host, relative, within};

const SEQ: usize = 16;
/// First tokens of the documents of each sequence.
const DOCUMENTS: [&[usize]; 2] = [&[0, 1, 9], &[0, 11]];

pub fn check<B: Backend>(device: &Device<B>) {
    let found = mixed::<B>(device);
    let expected = mixed::<Flex>(&Default::default());
    within("isolated documents", relative(&found, &expected), 2e-6);
}

/// Attention with two query heads per key-value head and a window with global tokens.
fn mixed<B: Backend>(device: &Device<B>) -> Vec<f32> {
    let random = |factor: usize, heads: usize| {
        let shape = [2, heads, SEQ, 4];
        let value = |i: usize| ((i * i * factor + 3 * i) % 31) as f32 / 8.0 - 2.0;
        let values = (0..shape.iter().product()).map(value).collect();
        Tensor::<B, 4>::from_data(TensorData::new(values, shape), device)
    };
    let first = DOCUMENTS
        .into_iter()
        .flat_map(|row| (0..SEQ).map(|i| *row.iter().rfind(|&&start| start <= i).unwrap() as i64));
    let first = TensorData::new(first.collect::<Vec<_>>(), [2, SEQ]);
    let options = AttentionOptions {
        reach: Reach::Window {
            tokens: 3,
            global_tokens: 2,
        },
        scale: 0.5,
        soft_cap: None,
        dropout: 0.0,
        precision: Precision::F32,
    };
    let documents = Some(Tensor::from_data(first, device));
    host(ops::attention(
        random(7, 4),
        random(5, 2),
        random(3, 2),
        AttentionMask::of_documents(documents),
        options,
    ))
}
