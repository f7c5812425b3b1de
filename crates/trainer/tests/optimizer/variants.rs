//! Variants of the optimizers: ten updates compared with PyTorch in float64 (`fixtures/make_variants.py`), and exact restoring.

use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_kernels::Backend;
use emberlm_model::Transformer;
use emberlm_model::weights::Parts;
use emberlm_trainer::TrainConfig;
use emberlm_trainer::optimizer::Optimizer;
use emberlm_trainer::optimizer::decay::decay_factor;
use serde_json::{Map, Value, json};

use crate::optimizer::fixture::{
    Training, floats_in, gradients, metadata, metadata_in, optimizer, rates, start, values,
};
use crate::optimizer::restore::on_host;
use crate::optimizer::updates::assert_close;

const BYTES: &[u8] = include_bytes!("../fixtures/optimizer_variants.safetensors");

/// The variants' settings by name, with the settings of the ten updates. Their learning rates are a cosine.
fn variants() -> Vec<(String, TrainConfig)> {
    let common = metadata("settings");
    let Value::Object(variants) = metadata_in(BYTES, "settings") else {
        panic!("not a table");
    };
    let configured = variants.into_iter().map(|(name, mut settings)| {
        settings["steps"] = json!(10);
        settings["schedule"] = json!({
            "kind": "cosine", "learning_rate": 0.01, "min_learning_rate": 0.0, "warmup_steps": 0,
        });
        let optimizer = settings["optimizer"].as_object_mut().unwrap();
        add_common(optimizer, &common);
        let config: TrainConfig = serde_json::from_value(settings).unwrap();
        config.check().unwrap();
        (name, config)
    });
    configured.collect()
}

/// Adds the settings that an optimizer has of the common ones.
fn add_common(optimizer: &mut Map<String, Value>, common: &Value) {
    let kind = optimizer["kind"].as_str().unwrap().to_owned();
    let keys: &[&str] = match kind.as_str() {
        "lion" => &["beta1", "beta2", "weight_decay"],
        "adamw" | "soap" => &["beta1", "beta2", "weight_decay", "epsilon"],
        _ => &["beta1", "beta2", "weight_decay", "epsilon", "momentum"],
    };
    for key in keys {
        optimizer.insert((*key).to_owned(), common[key].clone());
    }
}

/// Applies some of the ten updates with the schedule of the weight decay.
fn updated<B: Backend>(
    config: &TrainConfig,
    optimizer: &mut Optimizer<B>,
    mut decoder: Transformer<Training<B>>,
    steps: std::ops::Range<usize>,
) -> Transformer<Training<B>> {
    for step in steps {
        let grads = gradients(&decoder, step, 1.0);
        optimizer.set_decay_factor(decay_factor(config, step));
        decoder = optimizer.update::<Training<B>, _>(decoder, grads, None, rates()[step]);
    }
    decoder
}

fn match_pytorch<B: Backend>() {
    for (name, config) in variants() {
        let decoder = updated(&config, &mut optimizer::<B>(&config), start::<B>(), 0..10);
        assert_close(&name, &decoder, |name| floats_in(BYTES, name));
    }
}

#[test]
fn variants_match_pytorch_on_flex() {
    match_pytorch::<Flex>();
}

#[test]
fn variants_match_pytorch_on_ndarray() {
    match_pytorch::<NdArray>();
}

#[test]
fn variants_are_restored_bit_exactly() {
    for (name, config) in variants() {
        let whole = updated(&config, &mut optimizer(&config), start::<Flex>(), 0..10);
        let mut before = optimizer::<Flex>(&config);
        let decoder = updated(&config, &mut before, start::<Flex>(), 0..4);
        let tensors = on_host(&before.snapshot());
        let mut after = optimizer::<Flex>(&config);
        let parts = Parts::default();
        after
            .restore(4, tensors, &parts, &Default::default())
            .unwrap();
        let resumed = updated(&config, &mut after, decoder, 4..10);
        assert_eq!(values(&resumed), values(&whole), "{name}");
    }
}

#[test]
fn variants_with_zero_gradients_stay_finite() {
    for (name, config) in variants() {
        let mut optimizer = optimizer::<Flex>(&config);
        let mut decoder = start::<Flex>();
        // Zeros before and after others.
        for (step, factor) in [0.0, 0.0, 1.0, 0.0, 0.0].into_iter().enumerate() {
            let grads = gradients(&decoder, step, factor);
            decoder = optimizer.update(decoder, grads, None, 1e-2);
        }
        for (path, values) in values(&decoder) {
            assert!(values.iter().all(|x| x.is_finite()), "{name} {path}");
        }
    }
}
