//! A linear map.

use burn::module::{Module, Param};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Tensor};

use emberlm_kernels::{Backend, Precision, ops};

use crate::init::{Initializer, MapInto};
use crate::int8::Int8Map;

/// `y = x W + b`, with `W` stored `[in, out]`.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use emberlm_model::nn::LinearConfig;
///
/// let device = Default::default();
/// let linear = LinearConfig::new(16, 8).with_bias(true).init::<Flex>(&device);
/// let x = Tensor::zeros([2, 3, 16], &device);
/// assert_eq!(linear.forward(x, None).dims(), [2, 3, 8]);
/// ```
#[derive(Module, Debug)]
pub struct Linear<B: BurnBackend> {
    /// `[in, out]`.
    pub weight: Param<Tensor<B, 2>>,
    /// `[out]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    /// What serves in the weight's place, inside of a [`crate::InferenceDecoder`] alone.
    int8: Option<Int8Map<B>>,
    #[module(skip)]
    pub(crate) precision: Precision,
}

impl<B: Backend> Linear<B> {
    pub(crate) fn init(
        from: &Initializer<'_, B>,
        path: &str,
        shape: [usize; 2],
        bias: bool,
        into: MapInto,
    ) -> Self {
        let [fan_in, out] = shape;
        Self {
            weight: from.map(&format!("{path}.weight"), shape, fan_in, into),
            bias: bias.then(|| from.bias(&format!("{path}.bias"), out, fan_in)),
            int8: None,
            precision: Precision::default(),
        }
    }

    /// `[batch, seq, in]` to `[batch, seq, out]`, added to `residual` where there is one.
    pub fn forward(&self, x: Tensor<B, 3>, residual: Option<Tensor<B, 3>>) -> Tensor<B, 3> {
        let bias = self.bias.as_ref().map(Param::val);
        match &self.int8 {
            Some(map) => map.forward(x, bias, residual),
            None => ops::linear(x, self.weight.val(), bias, residual, self.precision),
        }
    }

    /// Makes the weight 8 bits, and lets go of its floats: a single zero stands where they were.
    pub(crate) fn quantize(&mut self) {
        let weight = self.weight.val();
        let nothing = Param::from_tensor(Tensor::zeros([1, 1], &weight.device()));
        self.weight = nothing;
        self.int8 = Some(Int8Map::of_rows(weight.transpose()));
    }
}

/// The configuration of a [`Linear`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearConfig {
    /// Elements of the input.
    pub d_input: usize,
    /// Elements of the output.
    pub d_output: usize,
    /// Whether it has a bias.
    pub bias: bool,
}

impl LinearConfig {
    /// A layer without a bias.
    pub const fn new(d_input: usize, d_output: usize) -> Self {
        Self {
            d_input,
            d_output,
            bias: false,
        }
    }

    /// The same with a bias or without.
    pub const fn with_bias(self, bias: bool) -> Self {
        Self { bias, ..self }
    }

    /// Elements of the weight.
    pub(crate) fn weights(&self) -> u128 {
        self.d_input as u128 * self.d_output as u128
    }

    /// Elements of its parameters.
    pub(crate) fn parameters(&self) -> u128 {
        self.weights() + if self.bias { self.d_output as u128 } else { 0 }
    }

    /// A layer with PyTorch's initial weights, uniform in `±1/√d_input`, drawn from the backend's random state.
    pub fn init<B: Backend>(&self, device: &Device<B>) -> Linear<B> {
        let from = Initializer::standalone(self.d_input, device);
        self.init_from(&from, "", MapInto::Hidden)
    }

    pub(crate) fn init_from<B: Backend>(
        &self,
        from: &Initializer<'_, B>,
        path: &str,
        into: MapInto,
    ) -> Linear<B> {
        let shape = [self.d_input, self.d_output];
        Linear::init(from, path, shape, self.bias, into)
    }
}
