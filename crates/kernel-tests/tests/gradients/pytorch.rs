//! Compares the head's loss and its gradients with PyTorch's `cross_entropy` in float64, with label smoothing,
//! z-loss and ignored targets. The fixture is written by `crates/model/tests/fixtures/make.py`.

use burn::backend::Autodiff;
use burn::tensor::{Device, Int, Tensor, TensorData};
use emberlm_kernels::{Backend, HeadLossOptions, Precision, ops};
use safetensors::SafeTensors;

/// The tolerance for `‖a - b‖ / ‖b‖`.
const TOLERANCE: f64 = 1e-5;

/// The label smoothing and z-loss of each variant in the script.
const OPTIONS: [(&str, f64, f64); 4] = [
    ("plain", 0.0, 0.0),
    ("smooth", 0.1, 0.0),
    ("z", 0.0, 0.01),
    ("both", 0.2, 0.05),
];

pub fn check<B: Backend>(device: &Device<B>) {
    let bytes = include_bytes!("../../../kernels/tests/fixtures/head_loss.safetensors");
    let fixture = SafeTensors::deserialize(bytes).unwrap();
    let tracked = |name: &str| {
        let tensor = Tensor::<Autodiff<B>, 2>::from_data(floats(&fixture, name), device);
        tensor.require_grad()
    };
    // `some` ignores five of the seven targets, including the last four.
    for which in ["all", "some"] {
        let targets = fixture.tensor(&format!("{which}.target")).unwrap();
        let (ids, _) = targets.data().as_chunks::<8>();
        let ids: Vec<i64> = ids.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
        let targets = TensorData::new(ids.clone(), [ids.len()]);
        let targets = Tensor::<Autodiff<B>, 1, Int>::from_data(targets, device);
        for (name, label_smoothing, z_loss) in OPTIONS {
            let (hidden, weight) = (tracked("hidden"), tracked("weight"));
            let options = HeadLossOptions {
                label_smoothing,
                z_loss,
                ..HeadLossOptions::default()
            };
            let loss = ops::head_loss(
                hidden.clone(),
                vec![weight.clone()],
                targets.clone(),
                options,
                Precision::F32,
            );
            let grads = loss.backward();
            let case = format!("{which}.{name}");
            let expected = |part: &str| floats(&fixture, &format!("{case}.{part}"));
            compare(&case, loss.into_data(), expected("loss"));
            for (part, input) in [("grad.hidden", &hidden), ("grad.weight", &weight)] {
                let actual = input.grad(&grads).unwrap().into_data();
                compare(&format!("{case}.{part}"), actual, expected(part));
            }
        }
    }
}

fn floats(fixture: &SafeTensors<'_>, name: &str) -> TensorData {
    let view = fixture.tensor(name).unwrap();
    let (chunks, _) = view.data().as_chunks::<4>();
    let values = chunks.iter().map(|bytes| f32::from_le_bytes(*bytes));
    TensorData::new(values.collect(), view.shape().to_vec())
}

fn compare(what: &str, actual: TensorData, expected: TensorData) {
    assert_eq!(actual.shape, expected.shape, "{what}");
    let pairs = || actual.iter::<f64>().zip(expected.iter::<f64>());
    let difference: f64 = pairs().map(|(a, b)| (a - b).powi(2)).sum();
    let norm: f64 = pairs().map(|(_, b)| b * b).sum();
    let error = difference.sqrt() / norm.sqrt();
    assert!(
        error <= TOLERANCE,
        "{what}: relative error {error:.2e} is above {TOLERANCE:.0e}"
    );
}
