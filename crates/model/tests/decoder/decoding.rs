//! Cached decoding equals the full pass, the fused loss equals the cross-entropy of the logits, and no token attends
//! to a later one.

use burn::tensor::Tensor;
use burn_flex::Flex;
use emberlm_kernels::HeadLossOptions;
use emberlm_model::{IGNORED_ELEMENT, KvCache, Transformer};

use crate::decoder::spread::{SEQ_LEN, VOCAB_SIZE, spread};
use crate::decoder::values::{BATCH, host, host_ids, tensor, tokens};

type Device = <Flex as burn::tensor::backend::BackendTypes>::Device;

/// Tolerance for `‖a - b‖ / ‖b‖` over the logits of a position.
const TOLERANCE: f64 = 1e-5;

#[test]
fn token_by_token_decoding_equals_full_pass() {
    in_chunks(&[1; SEQ_LEN]);
}

#[test]
fn uneven_chunks_equal_full_pass() {
    in_chunks(&[3, 1, 5, 2, 1]);
}

#[test]
fn last_logits_equal_those_of_full_pass() {
    for (name, decoder) in decoders() {
        let tokens = tokens(7);
        let full = decoder.forward(tokens.clone());
        let last = full.narrow(1, SEQ_LEN - 1, 1).reshape([BATCH, VOCAB_SIZE]);
        let mut cache = new_cache(&decoder);
        let found = decoder.next_logits(tokens, &mut cache);
        assert_close(&name, &host(found), &host(last));
    }
}

#[test]
fn cleared_cache_starts_from_scratch() {
    for (name, decoder) in decoders() {
        let mut cache = new_cache(&decoder);
        decoder.forward_cached(tokens(3), &mut cache);
        assert_eq!(cache.len(), SEQ_LEN);
        cache.clear();
        assert!(cache.is_empty());
        let found = decoder.forward_cached(tokens(7), &mut cache);
        assert_close(&name, &host(found), &host(decoder.forward(tokens(7))));
    }
}

#[test]
fn loss_equals_cross_entropy_of_logits() {
    check_losses(HeadLossOptions::default());
}

#[test]
fn training_loss_adds_label_smoothing_and_z_loss() {
    for (label_smoothing, z_loss) in [(0.1, 0.0), (0.0, 0.01), (0.2, 0.02)] {
        check_losses(HeadLossOptions {
            label_smoothing,
            z_loss,
            ..HeadLossOptions::default()
        });
    }
}

fn check_losses(options: HeadLossOptions) {
    for (name, decoder) in decoders() {
        let logits = host(decoder.forward(tokens(7)));
        for targets in targets() {
            let rows = logits.chunks(VOCAB_SIZE).zip(targets.iter().copied());
            let included = rows.filter(|&(_, target)| target >= 0);
            let expected: f64 = included
                .map(|(logits, target)| {
                    let sum: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
                    let mean =
                        logits.iter().map(|&x| f64::from(x)).sum::<f64>() / VOCAB_SIZE as f64;
                    let chosen = f64::from(logits[target as usize]);
                    let (smoothing, z) = (options.label_smoothing, options.z_loss);
                    (1.0 - smoothing) * (sum.ln() - chosen)
                        + smoothing * (sum.ln() - mean)
                        + z * sum.ln().powi(2)
                })
                .sum();
            let targets = tensor(targets, SEQ_LEN);
            let loss = decoder.training_loss_sum(tokens(7), targets.clone(), options);
            let found = f64::from(host(loss)[0]);
            let error = (found / expected - 1.0).abs();
            assert!(
                error < 1e-6,
                "{name}, {options:?}: {found}, {expected} by the logits: off by {error:.1e}"
            );
            if options == HeadLossOptions::default() {
                let plain = decoder.loss_sum(tokens(7), targets);
                assert_eq!(f64::from(host(plain)[0]), found, "{name}");
            }
        }
    }
}

/// Targets without ignored tokens, and targets with one sequence and the end of the other ignored.
pub fn targets() -> [Vec<i64>; 2] {
    let all = host_ids(8);
    let mut some = all.clone();
    some[SEQ_LEN - 3..].fill(IGNORED_ELEMENT.into());
    some[2] = IGNORED_ELEMENT.into();
    [all, some]
}

#[test]
fn token_losses_equal_cross_entropy_of_logits() {
    for (name, decoder) in decoders() {
        let logits = host(decoder.forward(tokens(7)));
        let likeliest = decoder
            .forward(tokens(7))
            .argmax(2)
            .reshape([BATCH, SEQ_LEN]);
        for targets in targets() {
            let scores = decoder.token_scores(tokens(7), tensor(targets.clone(), SEQ_LEN));
            let found = host(scores.losses);
            let greedy = scores.greedy.into_data();
            let found = found.into_iter().zip(greedy.iter::<bool>());
            for ((logits, target), (found, greedy)) in
                logits.chunks(VOCAB_SIZE).zip(targets).zip(found)
            {
                if target < 0 {
                    assert_eq!((found, greedy), (0.0, true), "{name}");
                    continue;
                }
                let sum: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
                let expected = sum.ln() - f64::from(logits[target as usize]);
                let error = (f64::from(found) - expected).abs();
                assert!(error < 1e-5, "{name}: {found}, not {expected}");
            }
        }
        let greedy = |targets| {
            let greedy = decoder.token_scores(tokens(7), targets).greedy;
            greedy.into_data().iter::<bool>().collect::<Vec<_>>()
        };
        assert!(
            greedy(likeliest.clone()).into_iter().all(|greedy| greedy),
            "{name}"
        );
        let others = (likeliest + 1).remainder_scalar(VOCAB_SIZE as i32);
        assert!(!greedy(others).into_iter().any(|greedy| greedy), "{name}");
    }
}

#[test]
fn later_tokens_do_not_change_earlier_logits() {
    for (name, decoder) in decoders() {
        let before = decoder.forward(tokens(7));
        for position in [1, SEQ_LEN / 2, SEQ_LEN - 1] {
            let mut ids = host_ids(7);
            for sequence in ids.chunks_mut(SEQ_LEN) {
                sequence[position] = (sequence[position] + 1) % VOCAB_SIZE as i64;
            }
            let after = decoder.forward(tensor(ids, SEQ_LEN));
            let earlier = |logits: &Tensor<Flex, 3>| host(logits.clone().narrow(1, 0, position));
            let [before_it, after_it] = [&before, &after].map(earlier);
            match decoder.config().experts() {
                // An expert's product has as many rows as tokens chose it, and rounds accordingly.
                Some(_) => assert_close(&name, &after_it, &before_it),
                None => assert_eq!(before_it, after_it, "{name}: position {position}"),
            }
            let own = |logits: &Tensor<Flex, 3>| host(logits.clone().narrow(1, position, 1));
            assert_ne!(
                own(&before),
                own(&after),
                "{name}: position {position} itself"
            );
        }
    }
}

fn in_chunks(sizes: &[usize]) {
    for (name, decoder) in decoders() {
        let tokens = tokens(7);
        let full = decoder.forward(tokens.clone());
        let mut cache = new_cache(&decoder);
        for &size in sizes {
            let start = cache.len();
            let chunk = tokens.clone().narrow(1, start, size);
            let cached = decoder.forward_cached(chunk, &mut cache);
            for i in 0..size {
                let position = start + i;
                let expected = host(full.clone().narrow(1, position, 1));
                let found = host(cached.clone().narrow(1, i, 1));
                assert_close(&format!("{name}: position {position}"), &found, &expected);
            }
        }
        assert_eq!(cache.len(), SEQ_LEN);
    }
}

/// The tested models, with weights large enough that attention and activations are far from trivial.
pub fn decoders() -> impl Iterator<Item = (String, Transformer<Flex>)> {
    spread()
        .into_iter()
        .map(|(name, config)| (name, config.init(5, &device())))
}

pub fn device() -> Device {
    Default::default()
}

pub fn new_cache(decoder: &Transformer<Flex>) -> KvCache<Flex> {
    KvCache::new(decoder.config(), BATCH, SEQ_LEN, &device())
}

pub fn assert_close(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let squares = |values: &mut dyn Iterator<Item = f32>| {
        values.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt()
    };
    let difference = squares(&mut found.iter().zip(expected).map(|(a, b)| a - b));
    let error = difference / squares(&mut expected.iter().copied());
    assert!(
        error <= TOLERANCE,
        "{what}: relative error {error:.2e} is above {TOLERANCE:.0e}"
    );
}
