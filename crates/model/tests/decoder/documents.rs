//! A packed sequence of isolated documents gives the same losses and gradients as its separate documents, with and
//! without recomputation. All tested configurations with softmax attention run on flex, and some on ndarray.

use burn::backend::Autodiff;
use burn::tensor::{Int, Tensor};
use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_kernels::TrainingBackend;
use emberlm_model::config::{AttentionKind, ModelConfig};
use emberlm_model::{Tokens, Transformer, TransformerConfig};

use crate::decoder::decoding::assert_close;
use crate::decoder::gradients::one_at_a_time;
use crate::decoder::packed_rows;
use crate::decoder::spread::{SEQ_LEN, VOCAB_SIZE, base, spread};
use crate::decoder::values::{host, tensor};

#[test]
fn packed_documents_equal_separate_ones_on_flex() {
    check_packed::<Autodiff<Flex>>(1, 1e-5);
}

#[test]
fn packed_documents_equal_separate_ones_on_ndarray() {
    // On ndarray, Burn's backward pass of a division (in the soft cap) approximates the reciprocal.
    check_packed::<Autodiff<NdArray>>(4, 5e-5);
}

fn check_packed<B: TrainingBackend>(every: usize, tolerance: f64) {
    let _guard = one_at_a_time();
    let models = isolating().into_iter().enumerate().step_by(every);
    for (number, (name, config)) in models {
        let decoder = config.init::<B>(5, &Default::default());
        packed_rows::check(&name, &decoder, number as u64, tolerance);
    }
}

/// The configurations that support isolated documents.
fn isolating() -> Vec<(String, TransformerConfig)> {
    let mut models = spread();
    models.retain(|(_, config)| config.check_documents().is_ok());
    assert!(models.iter().any(|(_, config)| {
        config
            .window()
            .is_some_and(|window| window.global_tokens > 0)
    }));
    models
}

#[test]
fn single_document_is_bit_identical_to_none() {
    for (name, config) in isolating() {
        let decoder = config.init::<Flex>(5, &Default::default());
        let [tokens, zeros] = [7, 0].map(|factor| ids(factor, 2));
        let isolated = Tokens {
            ids: tokens.clone(),
            documents: Some(zeros),
        };
        let [found, expected] = [isolated, tokens.into()]
            .map(|tokens: Tokens<Flex>| host(decoder.token_losses(tokens, ids(8, 2))));
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn documents_do_not_affect_each_other() {
    for (name, config) in isolating() {
        let decoder: Transformer<Flex> = config.init(5, &Default::default());
        let losses = |factor| {
            let first = ids(factor, 1).narrow(1, 0, 5);
            let documents = (0..SEQ_LEN).map(|i| if i < 5 { 0 } else { 5 }).collect();
            let tokens = Tokens {
                ids: Tensor::cat(vec![first, ids(7, 1).narrow(1, 5, SEQ_LEN - 5)], 1),
                documents: Some(tensor(documents, SEQ_LEN)),
            };
            host(decoder.token_losses(tokens, ids(8, 1)))
        };
        let [one, other] = [1, 2].map(losses);
        assert_ne!(one[..5], other[..5], "{name}");
        // An expert's product has as many rows as tokens chose it, and rounds accordingly.
        match config.experts() {
            Some(_) => assert_close(&name, &other[5..], &one[5..]),
            None => assert_eq!(one[5..], other[5..], "{name}"),
        }
    }
}

#[test]
fn invalid_documents_do_not_panic() {
    for (_, config) in isolating() {
        let decoder: Transformer<Flex> = config.init(5, &Default::default());
        for wrong in [-100, 3, 100] {
            let tokens = Tokens {
                ids: ids(7, 1),
                documents: Some(tensor(vec![wrong; SEQ_LEN], SEQ_LEN)),
            };
            decoder.loss_sum(tokens, ids(8, 1));
        }
    }
}

#[test]
fn linear_attention_is_rejected_with_field_and_rule() {
    let config = |attention| {
        let raw = ModelConfig {
            attention,
            ..base()
        };
        TransformerConfig::try_from(raw).unwrap()
    };
    assert_eq!(config(AttentionKind::SOFTMAX).check_documents(), Ok(()));
    let linear = AttentionKind::Linear {
        features: Some(24),
        seed: 1,
    };
    assert_eq!(
        config(linear).check_documents().unwrap_err().to_string(),
        "model.attention.kind = \"linear\": must be \"softmax\" for documents to be isolated: linear attention's sums \
         cannot remove a token"
    );
}

/// Ids `[batch, SEQ_LEN]`; all 0 if `factor` is 0.
fn ids(factor: usize, batch: usize) -> Tensor<Flex, 2, Int> {
    let id = |i: usize| (factor * (i * i + 3 * i + 1) % VOCAB_SIZE) as i64;
    tensor((0..batch * SEQ_LEN).map(id).collect(), SEQ_LEN)
}
