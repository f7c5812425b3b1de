//! Isolated documents and ignored targets on one backend against flex, on which the `documents` tests hold them to each
//! document alone.

use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_flex::Flex;
use emberlm_kernels::Backend;
use emberlm_model::config::{Init, Position};
use emberlm_model::{DecoderConfig, IGNORED, ModelConfig, Tokens, families};

use crate::checks::{host, relative, within};

const SEQ: usize = 16;
const VOCAB: usize = 31;
/// Where the documents of each row begin; the last of the second row is padding.
const DOCUMENTS: [&[usize]; 2] = [&[0, 1, 9], &[0, 11]];

pub fn check<B: Backend>(device: &Device<B>) {
    let found = losses::<B>(device);
    let expected = losses::<Flex>(&Default::default());
    assert!(found[SEQ + 11..].iter().all(|&loss| loss == 0.0));
    within("isolated documents", relative(&found, &expected), 2e-5);
}

/// Every token's loss, of a window with global tokens and positions that are looked up.
fn losses<B: Backend>(device: &Device<B>) -> Vec<f32> {
    let config = DecoderConfig::try_from(ModelConfig {
        vocab_size: VOCAB,
        seq_len: SEQ,
        d_model: 16,
        n_layers: 1,
        heads: 2,
        kv_heads: 1,
        window: 4,
        global_tokens: 2,
        position: Position::Sinusoidal,
        init: Init::Normal {
            std: 0.3,
            scale_residual: false,
        },
        ..families::preset("char-nano").unwrap().config
    });
    let first = DOCUMENTS
        .into_iter()
        .flat_map(|row| (0..SEQ).map(|i| *row.iter().rfind(|&&start| start <= i).unwrap() as i64));
    let mut targets = ids(5);
    targets[SEQ + 11..].fill(IGNORED.into());
    let tokens = Tokens {
        ids: tensor(ids(7), device),
        documents: Some(tensor(first.collect(), device)),
    };
    let decoder = config.unwrap().init::<B>(1, device);
    host(decoder.token_losses(tokens, tensor(targets, device)))
}

fn ids(factor: usize) -> Vec<i64> {
    let id = |i: usize| ((i * i * factor + 3 * i) % VOCAB) as i64;
    (0..2 * SEQ).map(id).collect()
}

fn tensor<B: Backend>(values: Vec<i64>, device: &Device<B>) -> Tensor<B, 2, Int> {
    Tensor::from_data(TensorData::new(values, [2, SEQ]), device)
}
