//! Random tensors, gradients and comparisons.

use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::backend::Autodiff;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorData, TensorPrimitive, backend};
use burn_flex::Flex;
use emberlm_kernels::{AttentionOptions, Backend, Precision, Reach, SelfAttention};
use emberlm_system::random::SplitMix64;
use proptest::test_runner::{Config, RngSeed};

/// The backend on which Burn differentiates the reference implementations. Not ndarray: there, Burn's backward
/// pass of a division multiplies by the CPU's reciprocal estimate, which is not accurate enough.
pub type Reference = Autodiff<Flex>;

/// The tolerance for `‖a - b‖ / ‖b‖`.
const TOLERANCE: f64 = 1e-5;

/// A configuration that draws the same cases in every run.
pub fn cases() -> Config {
    Config {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..Config::with_cases(24)
    }
}

/// Causal attention with this scale and nothing else.
pub const fn causal(scale: f64) -> AttentionOptions {
    AttentionOptions {
        reach: Reach::Causal,
        scale,
        soft_cap: None,
        dropout: 0.0,
        precision: Precision::F32,
    }
}

/// Causal attention over the output of a fused projection.
pub fn fused(heads: usize, kv_heads: usize, head_dim: usize) -> SelfAttention {
    SelfAttention {
        heads,
        kv_heads,
        head_dim,
        options: causal(0.4),
    }
}

/// Uniform numbers in ±2 from SplitMix64, determined by the seed.
pub fn numbers<const D: usize>(seed: u64, shape: [usize; D]) -> TensorData {
    let mut random = SplitMix64::new(seed);
    let mut number = || (random.next_u64() >> 40) as f32 / (1 << 22) as f32 - 2.0;
    let count = shape.iter().product();
    TensorData::new((0..count).map(|_| number()).collect(), shape)
}

pub fn constant<B: Backend, const D: usize>(data: &TensorData) -> Tensor<B, D> {
    Tensor::from_data(data.clone(), &Default::default())
}

pub fn tracked<B: backend::AutodiffBackend + Backend, const D: usize>(
    data: &TensorData,
) -> Tensor<B, D> {
    constant(data).require_grad()
}

pub fn primitive<B: backend::Backend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}

pub fn typed<B: backend::Backend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// The output, then the gradients of `Σ output · factors` with respect to each input. The factors differ between
/// elements, so errors do not cancel.
pub fn with_gradients<B, const D: usize, const E: usize>(
    output: Tensor<B, E>,
    inputs: &[&Tensor<B, D>],
) -> Vec<Vec<f32>>
where
    B: backend::AutodiffBackend + Backend,
{
    let all = with_used_gradients(output, inputs);
    assert!(all.iter().all(|of| !of.is_empty()), "a gradient is missing");
    all
}

/// [`with_gradients`], with no numbers for an input that the output does not depend on.
fn with_used_gradients<B, const D: usize, const E: usize>(
    output: Tensor<B, E>,
    inputs: &[&Tensor<B, D>],
) -> Vec<Vec<f32>>
where
    B: backend::AutodiffBackend + Backend,
{
    let factors = constant::<B, E>(&numbers(99, output.dims()));
    let grads = (output.clone() * factors).sum().backward();
    let gradients = inputs.iter().map(|input| input.grad(&grads));
    let gradients = gradients.map(|gradient| gradient.map(host).unwrap_or_default());
    std::iter::once(host(output.inner()))
        .chain(gradients)
        .collect()
}

/// The definition of an operation in f64.
pub trait Definition {
    /// The elements of the input with this number.
    fn input(&mut self, number: usize) -> &mut [f64];

    fn output(&self) -> Vec<f64>;

    /// The gradient of `Σ output · factors` with respect to an input, by central differences.
    fn gradient(&mut self, input: usize, factors: &[f64]) -> Vec<f32> {
        const STEP: f64 = 1e-5;
        let mut gradient = Vec::new();
        for at in 0..self.input(input).len() {
            let value = self.input(input)[at];
            let [above, below] = [STEP, -STEP].map(|step| {
                self.input(input)[at] = value + step;
                let output = self.output();
                output.iter().zip(factors).map(|(a, b)| a * b).sum::<f64>()
            });
            self.input(input)[at] = value;
            gradient.push(((above - below) / (2.0 * STEP)) as f32);
        }
        gradient
    }
}

/// Compares the output and the gradients of [`with_gradients`] with the operation's definition.
pub fn assert_is_defined(what: &str, actual: &[Vec<f32>], mut definition: impl Definition) {
    let output = definition.output();
    let factors: Vec<f64> = numbers(99, [output.len()]).iter::<f64>().collect();
    let gradients = (0..actual.len() - 1).map(|input| definition.gradient(input, &factors));
    let expected: Vec<_> = [in_f32(&output)].into_iter().chain(gradients).collect();
    assert_all_close(what, actual, &expected);
}

pub fn in_f32(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

pub fn host<B: backend::Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

/// Compares an operation on these inputs with an implementation that Burn differentiates: the output, and the
/// gradient of each input that it depends on.
pub fn assert_same<B: Backend, const N: usize, const D: usize, const E: usize>(
    what: &str,
    inputs: &[TensorData; N],
    actual: impl FnOnce([Tensor<Autodiff<B>, D>; N]) -> Tensor<Autodiff<B>, E>,
    expected: impl FnOnce([Tensor<Reference, D>; N]) -> Tensor<Reference, E>,
) {
    let of = inputs.each_ref().map(tracked::<Autodiff<B>, D>);
    let actual = with_used_gradients(actual(of.clone()), &of.each_ref());
    let of = inputs.each_ref().map(tracked::<Reference, D>);
    let expected = with_used_gradients(expected(of.clone()), &of.each_ref());
    assert_all_close(what, &actual, &expected);
}

/// Tests that the output and the gradients of an operation have the same bits in two runs.
#[cfg(feature = "vulkan")]
pub fn assert_repeatable<B: Backend, const N: usize, const D: usize, const E: usize>(
    what: &str,
    inputs: &[TensorData; N],
    operation: impl Fn([Tensor<Autodiff<B>, D>; N]) -> Tensor<Autodiff<B>, E>,
) {
    let bits = || {
        let of = inputs.each_ref().map(tracked::<Autodiff<B>, D>);
        let numbers = with_used_gradients(operation(of.clone()), &of.each_ref()).concat();
        numbers.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    assert_eq!(bits(), bits(), "{what} differs between runs");
}

/// Compares the output and each gradient.
pub fn assert_all_close(what: &str, actual: &[Vec<f32>], expected: &[Vec<f32>]) {
    assert_all_within(TOLERANCE, what, actual, expected);
}

/// Compares the output and each gradient with the given tolerance.
pub fn assert_all_within(tolerance: f64, what: &str, actual: &[Vec<f32>], expected: &[Vec<f32>]) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (place, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let part = match place {
            0 => "output".to_owned(),
            input => format!("gradient {input}"),
        };
        assert_within(tolerance, &format!("{what}: {part}"), actual, expected);
    }
}

pub fn assert_close(what: &str, actual: &[f32], expected: &[f32]) {
    assert_within(TOLERANCE, what, actual, expected);
}

fn assert_within(tolerance: f64, what: &str, actual: &[f32], expected: &[f32]) {
    assert_eq!(actual.len(), expected.len(), "{what}: elements");
    let pairs = actual.iter().zip(expected);
    let squared: f64 = pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum();
    let norm: f64 = expected.iter().map(|b| f64::from(*b).powi(2)).sum();
    // A gradient that cancels to zero is compared relative to 0.1, far below the terms that cancel.
    let error = squared.sqrt() / norm.sqrt().max(1e-1);
    assert!(
        error <= tolerance,
        "{what}: relative error {error:.2e} is above {tolerance:.0e}"
    );
}

/// Locks the random state, which the tests of a process share. A seed holds only while no other thread draws.
pub fn random_state() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}
