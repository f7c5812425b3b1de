//! Recomputation gives a bit-identical loss and gradients to one graph of the whole decoder, on flex and ndarray,
//! with and without dropout and isolated documents.

use std::collections::BTreeMap;

use burn::backend::Autodiff;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_kernels::{HeadLossOptions, TrainingBackend};
use emberlm_model::config::DropoutSite;
use emberlm_model::{Tokens, TrainingPass, Transformer, TransformerConfig};

use crate::decoder::gradients::{by_path, one_at_a_time};
use crate::decoder::spread::{SEQ_LEN, spread};
use crate::decoder::values::{BATCH, documents, host, tokens};

/// Loss and gradients on the host, by parameter path.
#[derive(Debug, PartialEq)]
struct LossAndGradients {
    loss: u32,
    grads: BTreeMap<String, Vec<u32>>,
}

#[test]
fn without_dropout_on_flex() {
    assert_equal::<Autodiff<Flex>>(0.0, whole_rows);
}

#[test]
fn without_dropout_on_ndarray() {
    assert_equal::<Autodiff<NdArray>>(0.0, whole_rows);
}

#[test]
fn with_dropout_on_flex() {
    assert_equal::<Autodiff<Flex>>(0.3, whole_rows);
}

#[test]
fn with_dropout_and_documents() {
    assert_equal::<Autodiff<Flex>>(0.3, isolated);
}

#[test]
fn with_dropout_on_ndarray() {
    assert_equal::<Autodiff<NdArray>>(0.3, whole_rows);
}

#[test]
fn dropout_depends_only_on_seed() {
    let _random = one_at_a_time();
    let config = with_dropout(&spread()[0].1, 0.3);
    let decoder = config.init::<Autodiff<Flex>>(5, &Default::default());
    for recompute in [false, true] {
        let of = |dropout_seed| {
            let pass = TrainingPass {
                recompute,
                dropout_seed,
                ..TrainingPass::default()
            };
            loss_and_gradients(&decoder, whole_rows(), pass)
        };
        let first = of(1);
        assert_ne!(first, of(2));
        assert_eq!(first, of(1));
    }
}

#[test]
fn every_micro_batch_has_a_different_seed() {
    let mut seeds = std::collections::BTreeSet::new();
    for seed in 0..10 {
        for step in 0..100 {
            for micro_batch in 0..20 {
                seeds.insert(TrainingPass::dropout_seed(seed, step, micro_batch));
            }
        }
    }
    assert_eq!(seeds.len(), 10 * 100 * 20);
}

fn assert_equal<B: TrainingBackend>(dropout: f64, input: fn() -> Tokens<B>) {
    let _random = one_at_a_time();
    let isolates = input().documents.is_some();
    for (name, config) in spread() {
        if isolates && config.check_documents().is_err() {
            continue;
        }
        let decoder = with_dropout(&config, dropout).init::<B>(5, &Default::default());
        let pass = |recompute| TrainingPass {
            recompute,
            dropout_seed: 3,
            ..TrainingPass::default()
        };
        let whole = loss_and_gradients(&decoder, input(), pass(false));
        let recomputed = loss_and_gradients(&decoder, input(), pass(true));
        let paths = |pass: &LossAndGradients| pass.grads.keys().cloned().collect::<Vec<_>>();
        assert!(!whole.grads.is_empty());
        assert_eq!(paths(&whole), paths(&recomputed), "{name}");
        assert_eq!(whole.loss, recomputed.loss, "{name}");
        for (path, grad) in &whole.grads {
            assert_eq!(grad, &recomputed.grads[path], "{name}: {path}");
        }
    }
}

fn with_dropout(config: &TransformerConfig, p: f64) -> TransformerConfig {
    let mut raw = config.raw();
    raw.dropout = p;
    raw.dropout_sites = vec![
        DropoutSite::Embedding,
        DropoutSite::Attention,
        DropoutSite::Hidden,
        DropoutSite::Residual,
    ];
    // Linear attention does not compute attention weights, so it supports no dropout of them.
    TransformerConfig::try_from(raw.clone()).unwrap_or_else(|_| {
        raw.dropout_sites
            .retain(|&site| site != DropoutSite::Attention);
        TransformerConfig::try_from(raw).unwrap()
    })
}

fn loss_and_gradients<B: TrainingBackend>(
    decoder: &Transformer<B>,
    input: Tokens<B>,
    pass: TrainingPass,
) -> LossAndGradients {
    let targets = tokens::<B>(8);
    let routers = decoder.config().router_coefficients();
    let made = decoder.gradients_with_routers(input, pass, routers, |hidden| {
        decoder.training_loss_sum_of(hidden, targets, HeadLossOptions::default())
            / (BATCH * SEQ_LEN) as f64
    });
    let loss = match made.router_loss {
        Some(router_loss) => made.loss + router_loss,
        None => made.loss,
    };
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
    let grads = by_path(decoder, &made.gradients);
    let grads = grads.into_iter().map(|(path, grad)| (path, bits(grad)));
    LossAndGradients {
        loss: host(loss)[0].to_bits(),
        grads: grads.collect(),
    }
}

fn whole_rows<B: TrainingBackend>() -> Tokens<B> {
    tokens(7).into()
}

fn isolated<B: TrainingBackend>() -> Tokens<B> {
    Tokens {
        ids: tokens(7),
        documents: Some(documents()),
    }
}
