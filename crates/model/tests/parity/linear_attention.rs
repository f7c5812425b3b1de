//! Compares linear attention on one backend with flex. The kernel tests compare flex with the definition.

use burn::backend::Autodiff;
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_flex::Flex;
use emberlm_kernels::Backend;
use emberlm_model::config::{AttentionKind, Init};
use emberlm_model::{ModelConfig, Transformer, TransformerConfig, families};

use crate::decoder::gradients::one_at_a_time;
use crate::parity::checks::{host, relative, within};

/// Two full chunks of tokens: a GPU backend compiles kernels for each shape.
const SEQ: usize = 128;
const VOCAB: usize = 31;

/// Compares the logits with flex's.
pub fn check_logits<B: Backend>(device: &Device<B>) {
    let (found, _) = logits::<B>(device);
    let (expected, _) = logits::<Flex>(&Default::default());
    compare("logits", &host(found), &host(expected));
}

/// Compares the logits and gradients with flex's.
pub fn check<B: Backend>(device: &Device<B>) {
    check_logits::<Autodiff<B>>(device);
    let found = gradients::<B>(device);
    let expected = gradients::<Flex>(&Default::default());
    for (layer, (found, expected)) in found.iter().zip(&expected).enumerate() {
        compare(&format!("gradient, layer {layer}"), found, expected);
    }
}

fn compare(what: &str, found: &[f32], expected: &[f32]) {
    let error = relative(found, expected);
    within(&format!("linear attention: {what}"), error, 2e-5);
}

fn logits<B: Backend>(device: &Device<B>) -> (Tensor<B, 3>, Transformer<B>) {
    let config = TransformerConfig::try_from(ModelConfig {
        vocab_size: Some(VOCAB),
        seq_len: SEQ,
        d_model: 24,
        n_layers: 2,
        heads: 2,
        kv_heads: Some(1),
        attention: AttentionKind::Linear {
            features: Some(48),
            seed: 1,
        },
        // Large enough that the norms of keys vary and their running maximum changes often.
        init: Init::Normal {
            std: 0.3,
            scale_residual: false,
        },
        ..families::preset("char-nano").unwrap().config
    });
    let decoder = config.unwrap().init::<B>(1, device);
    (decoder.forward(tokens(7, device)), decoder)
}

fn gradients<B: Backend>(device: &Device<B>) -> [Vec<f32>; 2] {
    let _guard = one_at_a_time();
    let (_, decoder) = logits::<Autodiff<B>>(device);
    let loss = decoder.loss_sum(tokens(7, device), tokens(5, device));
    let grads = loss.backward();
    [0, 1].map(|layer: usize| {
        let weight = decoder.stack.blocks[layer].attention.qkv.weight.val();
        host(weight.grad(&grads).unwrap())
    })
}

fn tokens<B: Backend>(factor: usize, device: &Device<B>) -> Tensor<B, 2, Int> {
    let ids = (0..2 * SEQ).map(|i| ((i * i * factor + 3 * i) % VOCAB) as i64);
    Tensor::from_data(TensorData::new(ids.collect::<Vec<_>>(), [2, SEQ]), device)
}
