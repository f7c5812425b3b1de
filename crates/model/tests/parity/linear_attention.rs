//! Linear attention on one backend against another: the values and gradients that the kernels' tests hold to the
//! definition on flex.

use burn::backend::Autodiff;
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_flex::Flex;
use emberlm_kernels::Backend;
use emberlm_model::config::{AttentionKind, Init};
use emberlm_model::{DecoderConfig, ModelConfig, families};

use crate::checks::{host, relative, within};

/// Two chunks of tokens, both whole: a GPU backend compiles its kernels for each shape anew.
const SEQ: usize = 128;
const VOCAB: usize = 31;

/// Compares with flex.
pub fn check<B: Backend>(device: &Device<B>) {
    let found = logits_and_gradients::<B>(device);
    let expected = logits_and_gradients::<Flex>(&Default::default());
    for (what, (found, expected)) in ["logits", "gradient, layer 0", "gradient, layer 1"]
        .iter()
        .zip(found.iter().zip(&expected))
    {
        let error = relative(found, expected);
        within(&format!("linear attention: {what}"), error, 2e-5);
    }
}

fn logits_and_gradients<B: Backend>(device: &Device<B>) -> [Vec<f32>; 3] {
    let config = DecoderConfig::try_from(ModelConfig {
        vocab_size: VOCAB,
        seq_len: SEQ,
        d_model: 24,
        n_layers: 2,
        heads: 2,
        kv_heads: 1,
        attention: AttentionKind::Linear {
            features: 48,
            seed: 1,
        },
        // Wide enough for keys of many sizes, so that the largest so far changes often.
        init: Init::Normal {
            std: 0.3,
            scale_residual: false,
        },
        ..families::preset("char-nano").unwrap().config
    });
    let decoder = config.unwrap().init::<Autodiff<B>>(1, device);
    let tokens = |factor: usize| {
        let ids = (0..2 * SEQ).map(|i| ((i * i * factor + 3 * i) % VOCAB) as i64);
        let data = TensorData::new(ids.collect::<Vec<_>>(), [2, SEQ]);
        Tensor::<Autodiff<B>, 2, Int>::from_data(data, device)
    };
    let logits = host(decoder.forward(tokens(7)));
    let grads = decoder.loss_sum(tokens(7), tokens(5)).backward();
    let gradient = |layer: usize| {
        let weight = decoder.blocks[layer].attention.qkv.weight.val();
        host(weight.grad(&grads).unwrap())
    };
    [logits, gradient(0), gradient(1)]
}
