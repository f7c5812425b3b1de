//! Tests attention weights: each row is a distribution over the visible tokens, and the weights reproduce the output.

use burn::tensor::Tensor;
use burn_flex::Flex;
use emberlm_model::config::{AttentionKind, Position, Wiring};
use emberlm_model::nn::AttentionContext;
use emberlm_model::{Transformer, TransformerConfig};

use crate::decoder::decoding::{assert_close, decoders, device};
use crate::decoder::spread::{SEQ_LEN, base};
use crate::decoder::values::{BATCH, host, host_ids, tokens};

#[test]
fn rows_are_distributions_over_visible_tokens() {
    for (name, decoder) in decoders() {
        let config = decoder.config();
        let layers = decoder.attention_weights(tokens(7));
        let nets = config.delta_nets();
        let nets = nets.map_or_else(Vec::new, |nets| nets.layers(config.n_layers()));
        let with_weights = (0..config.n_layers()).filter(|layer| !nets.contains(layer));
        assert_eq!(layers.len(), config.n_layers() - nets.len());
        for (layer, weights) in with_weights.zip(layers) {
            let window = config.window_of(layer);
            let global_tokens = config.window().map_or(0, |window| window.global_tokens);
            assert_eq!(weights.dims(), [BATCH, config.heads(), SEQ_LEN, SEQ_LEN]);
            for (row, weights) in host(weights).chunks(SEQ_LEN).enumerate() {
                let i = row % SEQ_LEN;
                let sum: f32 = weights.iter().sum();
                // A sink has the rest.
                let rest = if has_sinks(config) {
                    0.0..1.0
                } else {
                    -1e-5..1e-5
                };
                assert!(rest.contains(&(1.0 - sum)), "{name}: row {i} sums to {sum}");
                for (j, &weight) in weights.iter().enumerate() {
                    let near = window.is_none_or(|window| j + window > i);
                    let seen = j <= i && (near || j < global_tokens);
                    assert!(seen || weight == 0.0, "{name}: {i} sees {j}: {weight}");
                }
            }
        }
    }
}

fn has_sinks(config: &TransformerConfig) -> bool {
    matches!(
        config.raw().attention,
        AttentionKind::Softmax { sinks: true, .. }
    )
}

/// A model of one block whose attention receives the unnormalized embeddings.
fn one_block(heads: usize, attention: AttentionKind) -> Transformer<Flex> {
    let mut raw = base();
    raw.n_layers = 1;
    raw.heads = heads;
    raw.kv_heads = Some(1);
    raw.position = Position::None;
    raw.wiring = Wiring::PostNorm;
    raw.attention = attention;
    TransformerConfig::try_from(raw).unwrap().init(3, &device())
}

#[test]
fn one_head_matches_hand_calculation() {
    let decoder = one_block(1, AttentionKind::SOFTMAX);
    let width = decoder.config().d_model();
    let table = host(decoder.embeddings.tokens.joined());
    let map = host(decoder.stack.blocks[0].attention.qkv.weight.val()); // [d_model, 3 · d_model]
    let ids = host_ids(7);
    let mapped = |token: i64, first: usize| -> Vec<f64> {
        let x = &table[token as usize * width..][..width];
        let element = |column: usize| {
            let terms = x.iter().zip(map[column..].iter().step_by(3 * width));
            terms.map(|(x, w)| f64::from(*x) * f64::from(*w)).sum()
        };
        (first..first + width).map(element).collect()
    };
    let mut expected = Vec::new();
    for sequence in ids.chunks(SEQ_LEN) {
        for i in 0..SEQ_LEN {
            let query = mapped(sequence[i], 0);
            let score = |j: usize| -> f64 {
                let key = mapped(sequence[j], width);
                query.iter().zip(key).map(|(a, b)| a * b).sum()
            };
            let root = (width as f64).sqrt();
            let seen: Vec<f64> = (0..=i).map(|j| (score(j) / root).exp()).collect();
            let total: f64 = seen.iter().sum();
            expected.extend(seen.iter().map(|weight| (weight / total) as f32));
            expected.extend(std::iter::repeat_n(0.0, SEQ_LEN - 1 - i));
        }
    }
    let found = decoder.attention_weights(tokens(7)).remove(0);
    assert_close("one head", &host(found), &expected);
}

#[test]
fn weights_times_values_equal_attention_output() {
    let linear = AttentionKind::Linear {
        features: Some(24),
        seed: 1,
    };
    for kind in [AttentionKind::SOFTMAX, linear] {
        let decoder = one_block(4, kind.clone());
        let attention = &decoder.stack.blocks[0].attention;
        let (width, head_dim) = (decoder.config().d_model(), decoder.config().head_dim());
        let x = burn::tensor::module::embedding(decoder.embeddings.tokens.joined(), tokens(7));
        // With one key-value head, the values are the last columns of the fused projection.
        let values = attention.qkv.forward(x.clone(), None);
        let values: Tensor<Flex, 3> = values.narrow(2, width + head_dim, head_dim);
        let weights = decoder.attention_weights(tokens(7)).remove(0);
        let mixed = weights.matmul(values.unsqueeze_dim::<4>(1).repeat_dim(1, 4));
        let mixed = mixed.swap_dims(1, 2).reshape([BATCH, SEQ_LEN, width]);
        let found = host(attention.out.forward(mixed, None));
        let expected = host(
            attention
                .forward(x, AttentionContext::default(), None)
                .unwrap(),
        );
        assert_close(&format!("{kind:?}"), &found, &expected);
    }
}
