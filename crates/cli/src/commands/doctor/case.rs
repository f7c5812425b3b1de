//! Inputs and results of an operation under test.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, Int, Tensor, TensorData, TensorPrimitive};
use emberlm_kernels::TrainingBackend;

/// A device and the implementation under test.
#[derive(Debug)]
pub struct Case<B: TrainingBackend> {
    pub device: Device<B>,
    /// True to run the reference implementation instead of the backend's.
    pub composed: bool,
}

/// A named output or gradient.
#[derive(Clone, Debug)]
pub struct NamedValues {
    /// `output`, or the input of a gradient.
    pub name: String,
    pub values: Vec<f32>,
}

impl<B: TrainingBackend> Case<B> {
    /// Creates a tensor that requires gradients.
    pub fn tracked<const D: usize>(&self, seed: u64, shape: [usize; D]) -> Tensor<B, D> {
        self.constant(seed, shape).require_grad()
    }

    /// Creates a tensor without gradients.
    pub fn constant<const D: usize>(&self, seed: u64, shape: [usize; D]) -> Tensor<B, D> {
        Tensor::from_data(
            TensorData::new(numbers(seed, shape.iter().product()), shape),
            &self.device,
        )
    }

    /// Creates a tensor of integers in `0..limit`.
    pub fn integers<const D: usize>(
        &self,
        seed: u64,
        shape: [usize; D],
        limit: usize,
    ) -> Tensor<B, D, Int> {
        let numbers = numbers(seed, shape.iter().product());
        let integers = numbers
            .iter()
            .map(|x| (x + 2.0) as f64 / 4.0 * limit as f64);
        let integers: Vec<i64> = integers.map(|x| x as i64).collect();
        Tensor::from_data(TensorData::new(integers, shape), &self.device)
    }

    /// The output's gradient in [`Case::differentiated`].
    pub fn factors<const D: usize>(&self, shape: [usize; D]) -> Tensor<B, D> {
        self.constant(99, shape)
    }

    /// Returns the output, and the gradient of `Σ output · factors` with respect to each input. The factors
    /// differ per element, so that errors do not cancel.
    pub fn differentiated<const D: usize>(
        &self,
        output: Tensor<B, D>,
        mut inputs: Vec<(&str, Gradient<'_, B>)>,
    ) -> Vec<NamedValues> {
        let factors = self.factors(output.dims());
        let grads = (output.clone() * factors).sum().backward();
        let mut parts = vec![named_values("output", output)];
        for (name, gradient) in inputs.drain(..) {
            if let Some(values) = gradient(&grads) {
                parts.push(NamedValues {
                    name: format!("by {name}"),
                    values,
                });
            }
        }
        parts
    }
}

/// Reads the gradient of an input.
pub type Gradient<'a, B> =
    Box<dyn Fn(&<B as burn::tensor::backend::AutodiffBackend>::Gradients) -> Option<Vec<f32>> + 'a>;

/// Reads the gradient of a tensor of any rank.
pub fn gradient_of<B: TrainingBackend, const D: usize>(input: &Tensor<B, D>) -> Gradient<'_, B> {
    Box::new(move |grads| input.grad(grads).map(host))
}

/// Copies a tensor to the host as a named result.
pub fn named_values<B: burn::tensor::backend::Backend, const D: usize>(
    name: &str,
    tensor: Tensor<B, D>,
) -> NamedValues {
    NamedValues {
        name: name.to_owned(),
        values: host(tensor),
    }
}

/// Unwraps a tensor's primitive, for operations that are not methods of tensors.
pub fn float<B: burn::tensor::backend::Backend, const D: usize>(
    tensor: Tensor<B, D>,
) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}

/// Wraps a primitive in a tensor.
pub fn typed<B: burn::tensor::backend::Backend, const D: usize>(
    tensor: FloatTensor<B>,
) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(tensor))
}

fn host<B: burn::tensor::backend::Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

/// Returns numbers spread evenly over ±2 by the golden ratio. They depend only on the seed and the position.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    const STEP: f64 = 0.618_033_988_749_894_9;
    let start = seed as f64 * 0.754_877_666_246_692_7;
    let at =
        |i: usize| (start + (i * i % 9973) as f64 * STEP + i as f64 * 0.569_840_290_998).fract();
    (0..count).map(|i| (4.0 * at(i) - 2.0) as f32).collect()
}
