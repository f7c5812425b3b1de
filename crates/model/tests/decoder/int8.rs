//! Packed weights: logits are close to those of f32 weights, and cached decoding equals the full pass.

use std::collections::HashMap;

use burn::tensor::{Int, Tensor};
use burn_flex::Flex;
use emberlm_kernels::Backend;
use emberlm_model::weights::{load_own_in, named_tensors, save_own};
use emberlm_model::{PackedFormat, Transformer, TransformerConfig, WeightFormat};

use crate::decoder::decoding::{assert_close, decoders, device, new_cache, targets};
use crate::decoder::spread::{SEQ_LEN, base};
use crate::decoder::values::{host, tensor, tokens};

/// Tolerance for `‖a - b‖ / ‖b‖` over all logits, with weights that make activations far from linear. The rounding
/// error of a weight, half a scale, is 0.4 % of the largest weight in its row.
const TOLERANCE: f64 = 0.05;

fn quantized(decoder: &Transformer<Flex>) -> Transformer<Flex> {
    decoder.clone().with_weights(WeightFormat::INT8).unwrap()
}

fn logits<B: Backend>(decoder: &Transformer<B>, tokens: Tensor<B, 2, Int>) -> Vec<f32> {
    let logits = decoder.forward(tokens).into_data();
    logits.iter::<f32>().collect()
}

#[test]
fn logits_are_close_to_those_of_f32_weights() {
    let mut worst = (0.0, String::new());
    for (name, decoder) in decoders() {
        // Of two experts that are nearly as probable, rounded weights may choose the other.
        if decoder.config().experts().is_some() {
            continue;
        }
        let expected = logits(&decoder, tokens(7));
        let found = logits(&quantized(&decoder), tokens(7));
        let length =
            |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        let difference = length(&mut found.iter().zip(&expected).map(|(a, b)| a - b));
        let error = difference / length(&mut expected.iter().copied());
        assert!(error > 0.0, "{name}: nothing was rounded");
        if error > worst.0 {
            worst = (error, name);
        }
    }
    let (error, name) = worst;
    assert!(error <= TOLERANCE, "{name}: off by {error:.2e}");
}

#[test]
fn token_by_token_decoding_equals_full_pass() {
    for (name, decoder) in decoders() {
        let held = quantized(&decoder);
        let full = held.forward(tokens(7));
        let mut cache = new_cache(&decoder);
        for position in 0..SEQ_LEN {
            let token = tokens(7).narrow(1, position, 1);
            let found = host(held.next_logits(token, &mut cache));
            let expected = host(full.clone().narrow(1, position, 1));
            assert_close(&format!("{name}: position {position}"), &found, &expected);
        }
    }
}

#[test]
fn loss_equals_sum_of_token_losses() {
    for (name, decoder) in decoders() {
        let held = quantized(&decoder);
        for targets in targets() {
            let targets = tensor(targets, SEQ_LEN);
            let losses = host(held.token_losses(tokens(7), targets.clone()));
            let sum: f64 = losses.iter().map(|&loss| f64::from(loss)).sum();
            let found = f64::from(host(held.loss_sum(tokens(7), targets))[0]);
            assert!(
                (found / sum - 1.0).abs() < 1e-5,
                "{name}: {found}, not {sum}"
            );
        }
    }
}

#[test]
fn f32_format_keeps_trained_weights() {
    for (name, decoder) in decoders() {
        let expected = logits(&decoder, tokens(7));
        let held = decoder.clone().with_weights(WeightFormat::F32).unwrap();
        assert_eq!(logits(&held, tokens(7)), expected, "{name}");
        quantized(&decoder);
        assert_eq!(logits(&decoder, tokens(7)), expected, "{name} afterwards");
    }
}

/// ndarray holds the unpacked weights.
#[test]
fn ndarray_agrees() {
    use burn_ndarray::NdArray;
    for (name, decoder) in decoders().step_by(7) {
        let config = decoder.config().clone();
        let found = config
            .init::<NdArray>(5, &Default::default())
            .with_weights(WeightFormat::INT8)
            .unwrap();
        let ids = tokens::<Flex>(7).into_data();
        let found = logits(&found, Tensor::from_data(ids, &Default::default()));
        let expected = logits(&quantized(&decoder), tokens(7));
        assert_close(&name, &found, &expected);
    }
}

/// Packing weights while loading is bit-identical to loading and then packing them.
#[test]
fn packing_while_loading_equals_packing_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.safetensors");
    for (tied, largest) in [(true, None), (false, None), (false, Some(16 * 16 * 4))] {
        let mut raw = base();
        raw.head.tied = tied;
        let config = TransformerConfig::try_from(raw).unwrap();
        let saved = config.init::<Flex>(3, &device());
        save_own(&named_tensors(&saved), HashMap::new(), &file).unwrap();
        let load = |format| {
            let blank = config.blank_within::<Flex>(&device(), largest);
            load_own_in(blank, &file, format)
        };
        let packed = load(WeightFormat::INT8).unwrap();
        assert_eq!(packed.packed_format(), Some(PackedFormat::Int8));
        let floats = load(WeightFormat::F32).unwrap();
        assert_eq!(floats.packed_format(), None);
        let [found, expected] = [packed, floats.with_weights(WeightFormat::INT8).unwrap()]
            .map(|decoder| host(decoder.forward(tokens(7))));
        assert_eq!(found, expected, "{tied} {largest:?}");

        // A file with a missing block is rejected as in f32.
        let mut tensors = named_tensors(&saved);
        tensors.retain(|(name, _)| name != "blocks.1.attention.qkv.weight");
        save_own(&tensors, HashMap::new(), &file).unwrap();
        let [packed, floats] = [WeightFormat::INT8, WeightFormat::F32]
            .map(|format| load(format).unwrap_err().to_string());
        assert_eq!(packed, floats);
        assert!(packed.contains("blocks.1.attention.qkv.weight"), "{packed}");
    }
}
