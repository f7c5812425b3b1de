//! Recomputing gives what one graph of the whole decoder gives: loss and every gradient, to the bit, for every preset's
//! parts and a spread of every other legal configuration, with dropout and without, on flex and ndarray.

#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../decoding/spread.rs"]
#[allow(dead_code)]
mod spread;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::backend::Autodiff;
use burn::module::ParamId;
use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_kernels::{HeadLossOptions, TrainingBackend};
use emberlm_model::config::DropoutSite;
use emberlm_model::weights::{ParamVisitor, visit_params};
use emberlm_model::{Decoder, DecoderConfig, TrainingPass};
use spread::{SEQ_LEN, VOCAB_SIZE, spread};

const BATCH: usize = 2;

/// Loss and gradients as they are stored, by the parameters' paths.
#[derive(Debug, PartialEq)]
struct Found {
    loss: u32,
    grads: BTreeMap<String, Vec<u32>>,
}

#[test]
fn without_dropout_on_flex() {
    assert_equal::<Autodiff<Flex>>(0.0);
}

#[test]
fn without_dropout_on_ndarray() {
    assert_equal::<Autodiff<NdArray>>(0.0);
}

#[test]
fn with_dropout_on_flex() {
    assert_equal::<Autodiff<Flex>>(0.3);
}

#[test]
fn with_dropout_on_ndarray() {
    assert_equal::<Autodiff<NdArray>>(0.3);
}

#[test]
fn dropout_depends_on_its_seed_alone() {
    let _random = random_state();
    let config = with_dropout(&spread()[0].1, 0.3);
    let decoder = config.init::<Autodiff<Flex>>(5, &Default::default());
    for recompute in [false, true] {
        let of = |dropout_seed| {
            let pass = TrainingPass {
                recompute,
                dropout_seed,
            };
            found(&decoder, pass)
        };
        let first = of(1);
        assert_ne!(first, of(2));
        assert_eq!(first, of(1));
    }
}

#[test]
fn every_part_of_a_run_has_a_seed_of_its_own() {
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

fn assert_equal<B: TrainingBackend>(dropout: f64) {
    let _random = random_state();
    for (name, config) in spread() {
        let decoder = with_dropout(&config, dropout).init::<B>(5, &Default::default());
        let pass = |recompute| TrainingPass {
            recompute,
            dropout_seed: 3,
        };
        let whole = found(&decoder, pass(false));
        let recomputed = found(&decoder, pass(true));
        let paths = |found: &Found| found.grads.keys().cloned().collect::<Vec<_>>();
        assert!(!whole.grads.is_empty());
        assert_eq!(paths(&whole), paths(&recomputed), "{name}");
        assert_eq!(whole.loss, recomputed.loss, "{name}");
        for (path, grad) in &whole.grads {
            assert_eq!(grad, &recomputed.grads[path], "{name}: {path}");
        }
    }
}

/// The backends' random state is one for the whole process: one test at a time.
fn random_state() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_dropout(config: &DecoderConfig, p: f64) -> DecoderConfig {
    let mut raw = config.raw().clone();
    raw.dropout = p;
    raw.dropout_sites = vec![
        DropoutSite::Embedding,
        DropoutSite::Attention,
        DropoutSite::Hidden,
        DropoutSite::Residual,
    ];
    // Linear attention has no weights to drop.
    DecoderConfig::try_from(raw.clone()).unwrap_or_else(|_| {
        raw.dropout_sites
            .retain(|&site| site != DropoutSite::Attention);
        DecoderConfig::try_from(raw).unwrap()
    })
}

fn found<B: TrainingBackend>(decoder: &Decoder<B>, pass: TrainingPass) -> Found {
    let targets = tokens::<B>(8);
    let (loss, grads) = decoder.gradients(tokens::<B>(7), pass, |hidden| {
        decoder.training_loss_sum_of(hidden, targets, HeadLossOptions::default())
            / (BATCH * SEQ_LEN) as f64
    });
    let mut read = Read::<B> {
        from: &grads,
        grads: BTreeMap::new(),
    };
    visit_params(decoder, &mut read);
    Found {
        loss: bits(loss)[0],
        grads: read.grads,
    }
}

struct Read<'a, B: TrainingBackend> {
    from: &'a B::Gradients,
    grads: BTreeMap<String, Vec<u32>>,
}

impl<B: TrainingBackend> ParamVisitor<B> for Read<'_, B> {
    fn visit<const D: usize>(&mut self, path: &str, _id: ParamId, value: Tensor<B, D>) {
        if let Some(grad) = value.grad(self.from) {
            assert_eq!(grad.dims(), value.dims(), "{path}");
            self.grads.insert(path.to_owned(), bits(grad));
        }
    }
}

fn bits<B: burn::tensor::backend::Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<u32> {
    tensor.into_data().iter::<f32>().map(f32::to_bits).collect()
}

fn tokens<B: TrainingBackend>(factor: usize) -> Tensor<B, 2, Int> {
    let id = |i: usize| ((i * i * factor + 3 * i + factor) % VOCAB_SIZE) as i64;
    let ids: Vec<i64> = (0..BATCH * SEQ_LEN).map(id).collect();
    Tensor::from_data(TensorData::new(ids, [BATCH, SEQ_LEN]), &Default::default())
}
