//! Tests the head's loss and gradients with the default tiling and with small, odd tilings.

use emberlm_kernels::cpu::head_loss::tiling::Tiling;
use emberlm_kernels::cpu::head_loss::{
    HeadLossTask, head_loss, head_loss_gradients, head_loss_gradients_tiled,
    head_loss_hidden_gradient, head_loss_tiled,
};
use emberlm_kernels::{HeadLossOptions, Precision};
use proptest::prelude::*;
use proptest::sample::select;

use crate::numbers::{assert_close, cases, numbers, same_on_any_threads};

/// The loss, `dhidden` and `dW`.
fn expected(task: &HeadLossTask<'_>) -> [Vec<f64>; 3] {
    let HeadLossTask { width, vocab, .. } = *task;
    let HeadLossOptions {
        label_smoothing,
        z_loss,
        soft_cap,
    } = task.options;
    let even = label_smoothing / vocab as f64;
    let mut loss = 0.0;
    let mut hidden_grad = vec![0.0; task.hidden.len()];
    let mut weight_grad = vec![0.0; task.weight.len()];
    let hidden = task.hidden.chunks_exact(width);
    let learnt = hidden
        .zip(task.targets)
        .zip(hidden_grad.chunks_exact_mut(width));
    for ((hidden, target), hidden_grad) in learnt.filter(|((_, target), _)| **target >= 0) {
        let dot = |weight: &[f32]| -> f64 {
            let pairs = weight.iter().zip(hidden);
            pairs.map(|(w, h)| f64::from(*w) * f64::from(*h)).sum()
        };
        let capped = |x: f64| match soft_cap {
            0.0 => x,
            cap => cap * (x / cap).tanh(),
        };
        let logits: Vec<f64> = task
            .weight
            .chunks_exact(width)
            .map(dot)
            .map(capped)
            .collect();
        let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|x| (x - max).exp()).sum();
        let log_sum = max + sum.ln();
        loss += log_sum
            - (1.0 - label_smoothing) * logits[*target as usize]
            - even * logits.iter().sum::<f64>()
            + z_loss * log_sum * log_sum;
        for (v, x) in logits.iter().enumerate() {
            let mut g = (1.0 + 2.0 * z_loss * log_sum) * (x - log_sum).exp() - even;
            if v == *target as usize {
                g -= 1.0 - label_smoothing;
            }
            if soft_cap > 0.0 {
                g *= 1.0 - (x / soft_cap).powi(2);
            }
            for i in 0..width {
                hidden_grad[i] += g * f64::from(task.weight[v * width + i]);
                weight_grad[v * width + i] += g * f64::from(hidden[i]);
            }
        }
    }
    [vec![loss], hidden_grad, weight_grad]
}

/// Compares the loss and the gradients for several numbers of threads. The output memory is initially NaN.
#[track_caller]
fn check(task: &HeadLossTask<'_>, tiling: Option<Tiling>, tolerance: f64) {
    let [expected_loss, expected_hidden, expected_weight] = expected(task);
    let actual = same_on_any_threads(|| {
        let mut hidden = vec![f32::NAN; task.hidden.len()];
        let mut weight = vec![f32::NAN; task.weight.len()];
        let (loss, loss_only) = match tiling {
            None => {
                let loss = head_loss_gradients(task, &mut hidden, &mut weight);
                (loss, head_loss(task))
            }
            Some(tiling) => {
                let loss = head_loss_gradients_tiled(task, |_| tiling, &mut hidden, &mut weight);
                (loss, head_loss_tiled(task, |_| tiling))
            }
        };
        let mut frozen = vec![f32::NAN; task.hidden.len()];
        if tiling.is_none() {
            let frozen_loss = head_loss_hidden_gradient(task, &mut frozen);
            assert_eq!(
                (frozen_loss, &frozen),
                (loss, &hidden),
                "with a frozen weight"
            );
        }
        let losses = [loss, loss_only].map(|x| x as f32);
        [&losses[..], &hidden, &weight].concat()
    });
    let (losses, grads) = actual.split_at(2);
    let (hidden, weight) = grads.split_at(task.hidden.len());
    assert_close("loss", &losses[..1], &expected_loss, tolerance);
    assert_close("only the loss", &losses[1..], &expected_loss, tolerance);
    assert_close("hidden", hidden, &expected_hidden, tolerance);
    assert_close("weight", weight, &expected_weight, tolerance);
}

/// The targets of a case, of which some, none or all are ignored.
fn targets(tokens: usize, vocab: usize, ignored: &str, seed: u64) -> Vec<i32> {
    let target = |i: u64| match ignored {
        "all" => -1,
        "some" if (seed ^ i.wrapping_mul(0x9e37_79b9)).is_multiple_of(3) => -100,
        _ => (seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % vocab as u64) as i32,
    };
    (0..tokens as u64).map(target).collect()
}

fn options() -> impl Strategy<Value = HeadLossOptions> {
    let values = (
        select(vec![0.0, 0.1, 0.6]),
        select(vec![0.0, 1e-4, 0.05]),
        select(vec![0.0, 1.5, 30.0]),
    );
    values.prop_map(|(label_smoothing, z_loss, soft_cap)| HeadLossOptions {
        label_smoothing,
        z_loss,
        soft_cap,
    })
}

fn tilings() -> impl Strategy<Value = Option<Tiling>> {
    let sizes = [1_usize..80, 1..40, 1..700, 1..5, 1..50];
    let sizes = sizes.prop_map(|[block, part, tile, chunk, strip]| Tiling {
        block,
        part,
        tile,
        chunk,
        strip,
    });
    proptest::option::of(sizes)
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn loss_and_gradients_match_loops(
        tokens in 1_usize..70,
        width in 1_usize..40,
        vocab in prop_oneof![2_usize..80, 2_usize..3000],
        options in options(),
        tiling in tilings(),
        ignored in select(vec!["none", "some", "some", "all"]),
        seed in 0..u64::MAX - 1,
    ) {
        let hidden = numbers(seed, tokens * width);
        let weight = numbers(seed + 1, vocab * width);
        let task = HeadLossTask {
            hidden: &hidden,
            weight: &weight,
            targets: &targets(tokens, vocab, ignored, seed),
            width,
            vocab,
            options,
            precision: Precision::F32,
        };
        check(&task, tiling, 2e-5);
    }
}

/// Logits from -80 to 80 that increase or decrease over the vocabulary, or alternate by row. The first references
/// are far from the final ones.
#[test]
fn references_follow_large_logits() {
    let (tokens, vocab, width) = (9, 400, 2);
    let hidden: Vec<f32> = (0..tokens)
        .flat_map(|i| [1.0 - i as f32 / 4.0, 0.1])
        .collect();
    let weight: Vec<f32> = (0..vocab)
        .flat_map(|v| [80.0 - 0.4 * v as f32, (v * 7 % 13) as f32])
        .collect();
    for (label_smoothing, soft_cap) in [(0.0, 0.0), (0.1, 0.0), (0.0, 50.0), (0.1, 50.0)] {
        for tile in [1, 7, 64, 512] {
            let task = HeadLossTask {
                hidden: &hidden,
                weight: &weight,
                targets: &targets(tokens, vocab, "some", 7),
                width,
                vocab,
                options: HeadLossOptions {
                    label_smoothing,
                    z_loss: 1e-4,
                    soft_cap,
                },
                precision: Precision::F32,
            };
            let tiling = Tiling {
                block: 5,
                part: 2,
                tile,
                chunk: 11,
                strip: 1,
            };
            check(&task, Some(tiling), 1e-4);
        }
    }
}

/// A NaN logit makes the loss NaN.
#[test]
fn nan_logits_make_the_loss_nan() {
    let task = HeadLossTask {
        hidden: &[1.0, f32::NAN],
        weight: &[0.5, -0.5],
        targets: &[0, 1],
        width: 1,
        vocab: 2,
        options: HeadLossOptions::default(),
        precision: Precision::F32,
    };
    assert!(head_loss(&task).is_nan());
}
