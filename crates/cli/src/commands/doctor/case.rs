//! The inputs of an operation and its results.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Device, Int, Tensor, TensorData, TensorPrimitive};
use emberlm_kernels::TrainingBackend;

/// A backend, its device, and which of its operations are asked.
#[derive(Debug)]
pub struct Case<B: TrainingBackend> {
    /// The device.
    pub device: Device<B>,
    /// True if the operations are composed of Burn's own, in place of the backend's overrides.
    pub composed: bool,
}

/// An output or a gradient, and its numbers.
#[derive(Clone, Debug)]
pub struct Part {
    /// `output`, or of what it is the gradient.
    pub name: String,
    /// Its elements.
    pub values: Vec<f32>,
}

impl<B: TrainingBackend> Case<B> {
    /// A tensor of numbers that is differentiated.
    pub fn tracked<const D: usize>(&self, seed: u64, shape: [usize; D]) -> Tensor<B, D> {
        self.constant(seed, shape).require_grad()
    }

    /// A tensor of numbers.
    pub fn constant<const D: usize>(&self, seed: u64, shape: [usize; D]) -> Tensor<B, D> {
        Tensor::from_data(
            TensorData::new(numbers(seed, shape.iter().product()), shape),
            &self.device,
        )
    }

    /// A tensor of integers from 0 to below `limit`.
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

    /// The output, and the gradient of `Σ output · factors` by each input: another factor for each element, so that no two
    /// mistakes cancel.
    pub fn differentiated<const D: usize>(
        &self,
        output: Tensor<B, D>,
        mut inputs: Vec<(&str, Gradient<'_, B>)>,
    ) -> Vec<Part> {
        let factors = self.factors(output.dims());
        let grads = (output.clone() * factors).sum().backward();
        let mut parts = vec![part("output", output)];
        for (name, gradient) in inputs.drain(..) {
            if let Some(values) = gradient(&grads) {
                parts.push(Part {
                    name: format!("by {name}"),
                    values,
                });
            }
        }
        parts
    }
}

/// Reads an input's gradient.
pub type Gradient<'a, B> =
    Box<dyn Fn(&<B as burn::tensor::backend::AutodiffBackend>::Gradients) -> Option<Vec<f32>> + 'a>;

/// Reads the gradient of a tensor of any rank.
pub fn gradient_of<B: TrainingBackend, const D: usize>(input: &Tensor<B, D>) -> Gradient<'_, B> {
    Box::new(move |grads| input.grad(grads).map(host))
}

/// A tensor that is only read.
pub fn part<B: burn::tensor::backend::Backend, const D: usize>(
    name: &str,
    tensor: Tensor<B, D>,
) -> Part {
    Part {
        name: name.to_owned(),
        values: host(tensor),
    }
}

/// For the operations that are no methods of tensors.
pub fn float<B: burn::tensor::backend::Backend, const D: usize>(
    tensor: Tensor<B, D>,
) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}

/// The backward pass.
pub fn typed<B: burn::tensor::backend::Backend, const D: usize>(
    tensor: FloatTensor<B>,
) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(tensor))
}

fn host<B: burn::tensor::backend::Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

/// Spread evenly over ±2, by the golden ratio: a function of only the seed and the position.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    const STEP: f64 = 0.618_033_988_749_894_9;
    let start = seed as f64 * 0.754_877_666_246_692_7;
    let at =
        |i: usize| (start + (i * i % 9973) as f64 * STEP + i as f64 * 0.569_840_290_998).fract();
    (0..count).map(|i| (4.0 * at(i) - 2.0) as f32).collect()
}
