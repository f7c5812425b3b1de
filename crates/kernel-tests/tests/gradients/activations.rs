//! Compares activations and their derivatives with PyTorch's in float64 at 2001 points from -8 to 8. The fixture
//! is written by `crates/model/tests/fixtures/make.py`.

use burn::backend::Autodiff;
use burn::tensor::{Device, Tensor, TensorData};
use emberlm_kernels::{Activation, Backend, ops};
use safetensors::SafeTensors;

/// The tolerance for a value or derivative `y`, in units of `max(1, |y|)`. Burn's own GELU exceeds it by a factor
/// of 1000.
const TOLERANCE: f64 = 1e-6;

pub fn check<B: Backend>(device: &Device<B>) {
    let bytes = include_bytes!("../../../kernels/tests/fixtures/activations.safetensors");
    let fixture = SafeTensors::deserialize(bytes).unwrap();
    let read = |name: &str| floats(&fixture, name);
    for kind in Activation::ALL {
        let name = name_of(kind);
        let x = read("x");
        let data = TensorData::new(x.clone(), [x.len()]);
        let input = Tensor::<Autodiff<B>, 1>::from_data(data, device).require_grad();
        let output = ops::activation(kind, input.clone());
        let grads = output.clone().sum().backward();
        let slope = input.grad(&grads).unwrap();
        compare(
            &format!("{name}(x)"),
            &x,
            &host(output),
            &read(&format!("value.{name}")),
        );
        compare(
            &format!("{name}'(x)"),
            &x,
            &host(slope),
            &read(&format!("grad.{name}")),
        );
        // As a gate of another factor.
        let up = Tensor::<Autodiff<B>, 1>::full([x.len()], 2.0, device).require_grad();
        let grads = ops::gated(kind, input.clone(), up.clone()).sum().backward();
        let factor = match kind {
            Activation::ClampedSilu => 3.0,
            _ => 2.0,
        };
        let of_one = |of: Tensor<B, 1>| host(of / factor);
        compare(
            &format!("gated {name}'(x)"),
            &x,
            &of_one(input.grad(&grads).unwrap()),
            &read(&format!("grad.{name}")),
        );
        compare(
            &format!("gated {name}(x)"),
            &x,
            &host(up.grad(&grads).unwrap()),
            &read(&format!("value.{name}")),
        );
    }
}

fn name_of(kind: Activation) -> &'static str {
    match kind {
        Activation::Relu => "relu",
        Activation::ReluSquared => "relu_squared",
        Activation::Gelu => "gelu",
        Activation::GeluTanh => "gelu_tanh",
        Activation::Silu => "silu",
        Activation::ClampedSilu => "clamped_silu",
    }
}

fn floats(fixture: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    let view = fixture.tensor(name).unwrap();
    let (chunks, _) = view.data().as_chunks::<4>();
    chunks
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect()
}

fn host<B: burn::tensor::backend::Backend>(tensor: Tensor<B, 1>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

fn compare(what: &str, x: &[f32], actual: &[f32], expected: &[f32]) {
    assert_eq!(actual.len(), expected.len());
    for ((x, actual), expected) in x.iter().zip(actual).zip(expected) {
        let scale = f64::from(expected.abs()).max(1.0);
        let error = (f64::from(*actual) - f64::from(*expected)).abs() / scale;
        assert!(
            error <= TOLERANCE,
            "{what} at x = {x}: {actual}, PyTorch has {expected}: off by {error:.2e}"
        );
    }
}
