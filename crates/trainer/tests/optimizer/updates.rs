//! Ten updates with given gradients, compared with PyTorch in float64 (`fixtures/make.py`).

use burn::tensor::Tensor;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use emberlm_kernels::Backend;
use emberlm_model::Transformer;
use emberlm_trainer::OptimizerKind;

use crate::optimizer::fixture::{
    Training, config, floats, gradients, optimizer, start, updated, values,
};

/// Relative to the whole change of a parameter. Measured on flex and ndarray: AdamW and Lion 8e-6, Muon
/// 1.3e-5.
const TOLERANCE: f64 = 5e-5;

fn matches_pytorch<B: Backend>(name: &str, kind: OptimizerKind) {
    for own_groups in [false, true] {
        let mut optimizer = optimizer::<B>(&config(kind, own_groups));
        let decoder = updated(&mut optimizer, start::<B>(), 0..10);
        let set = if own_groups { "_groups" } else { "" };
        assert_close(&format!("{name}{set}"), &decoder, floats);
    }
}

/// Compares the parameters after the ten updates with the tensors `NAME.PATH` of a fixture.
pub fn assert_close<B: Backend>(
    name: &str,
    decoder: &Transformer<Training<B>>,
    fixture: impl Fn(&str) -> Vec<f32>,
) {
    for (path, found) in values(decoder) {
        let expected = fixture(&format!("{name}.{path}"));
        let start = floats(&format!("start.{path}"));
        let distance = |a: &[f32], b: &[f32]| -> f64 {
            let squares = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2));
            squares.sum::<f64>().sqrt()
        };
        let changed = distance(&expected, &start);
        assert!(changed > 0.0, "{path}");
        let error = distance(&found, &expected) / changed;
        println!("{name} {path}: {error:.1e}");
        assert!(error < TOLERANCE, "{name} {path}: off by {error:.1e}");
    }
}

#[test]
fn adamw_on_flex() {
    matches_pytorch::<Flex>("adamw", OptimizerKind::AdamW);
}

#[test]
fn adamw_on_ndarray() {
    matches_pytorch::<NdArray>("adamw", OptimizerKind::AdamW);
}

#[test]
fn muon_on_flex() {
    matches_pytorch::<Flex>("muon", OptimizerKind::Muon);
}

#[test]
fn muon_on_ndarray() {
    matches_pytorch::<NdArray>("muon", OptimizerKind::Muon);
}

#[test]
fn lion_on_flex() {
    matches_pytorch::<Flex>("lion", OptimizerKind::Lion);
}

#[test]
fn lion_on_ndarray() {
    matches_pytorch::<NdArray>("lion", OptimizerKind::Lion);
}

#[test]
fn the_factor_applies_to_every_gradient() {
    for kind in OptimizerKind::ALL {
        let outcome = |factor: f32, given: f32| {
            let mut optimizer = optimizer::<Flex>(&config(kind, false));
            let mut decoder = start::<Flex>();
            // Halved in only one of two steps, since the first update of AdamW and Lion does not depend on
            // the scale.
            for (step, halved) in [(0, false), (1, true)] {
                let (factor, given) = if halved { (factor, given) } else { (1.0, 1.0) };
                let grads = gradients(&decoder, step, given);
                let factor = Tensor::from_floats([factor], &Default::default());
                decoder = optimizer.update(decoder, grads, Some(factor), 1e-2);
            }
            values(&decoder)
        };
        assert_eq!(outcome(0.5, 1.0), outcome(1.0, 0.5), "{kind:?}");
        assert_ne!(outcome(0.5, 1.0), outcome(1.0, 1.0), "{kind:?}");
    }
}

/// A matrix with a zero gradient changes only by weight decay.
#[test]
fn muon_with_a_zero_gradient_stays_finite() {
    let mut optimizer = optimizer::<Flex>(&config(OptimizerKind::Muon, false));
    let decoder = start::<Flex>();
    let grads = gradients(&decoder, 0, 0.0);
    let decoder = optimizer.update(decoder, grads, None, 1e-2);
    for (path, found) in values(&decoder) {
        let decay: f32 = if path.ends_with("gain") || path.ends_with("bias") {
            1.0
        } else {
            1.0 - 1e-2 * 0.1
        };
        for (found, start) in found.iter().zip(floats(&format!("start.{path}"))) {
            assert!((found - start * decay).abs() < 1e-6, "{path}");
        }
    }
}
