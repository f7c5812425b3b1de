//! A linear layer, with its weight in f32 or packed, and an optional low-rank adapter.

use burn::module::{Module, Param};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Tensor};

use emberlm_kernels::{Backend, PackedFormat, PackedWeight, Precision, ops};

use crate::init::{Initializer, OutputRole};
use crate::low_rank::LowRank;

/// `y = x W + b`, with an adapter `y = x W + b + scale · (x A) B`.
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
    /// The weight W, `[in, out]`.
    pub weight: LinearWeight<B>,
    /// The bias b, `[out]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    /// The adapter that is added to the weight.
    pub adapter: Option<LowRank<B>>,
    #[module(skip)]
    pub(crate) precision: Precision,
}

/// The weight of a linear layer.
#[derive(Module, Debug)]
pub enum LinearWeight<B: BurnBackend> {
    /// A parameter, `[in, out]`.
    Float(Param<Tensor<B, 2>>),
    /// Packed by its outputs, `[out, in]`. It is no parameter: it is not trained.
    Packed(PackedWeight<B>),
}

impl<B: BurnBackend> LinearWeight<B> {
    /// The weight with `change` made to it, which keeps its shape. A packed weight stays as it is.
    pub fn mapped(self, change: impl FnOnce(Tensor<B, 2>) -> Tensor<B, 2>) -> Self {
        match self {
            Self::Float(weight) => Self::Float(weight.map(change)),
            Self::Packed(_) => self,
        }
    }
}

impl<B: Backend> LinearWeight<B> {
    /// The weight in f32, `[in, out]`. A packed weight is unpacked for it.
    pub fn val(&self) -> Tensor<B, 2> {
        match self {
            Self::Float(weight) => weight.val(),
            Self::Packed(weight) => ops::unpack(weight.clone()).transpose(),
        }
    }
}

impl<B: Backend> Linear<B> {
    pub(crate) fn init(
        from: &Initializer<'_, B>,
        path: &str,
        shape: [usize; 2],
        bias: bool,
        into: OutputRole,
    ) -> Self {
        let [fan_in, out] = shape;
        let weight = from.map(&format!("{path}.weight"), shape, fan_in, into);
        Self {
            weight: LinearWeight::Float(weight),
            bias: bias.then(|| from.bias(&format!("{path}.bias"), out, fan_in)),
            adapter: None,
            precision: Precision::default(),
        }
    }

    /// `[in, out]`.
    pub fn shape(&self) -> [usize; 2] {
        match &self.weight {
            LinearWeight::Float(weight) => {
                let shape = weight.lazy_shape();
                [shape[0], shape[1]]
            }
            LinearWeight::Packed(weight) => {
                let [out, fan_in] = weight.shape();
                [fan_in, out]
            }
        }
    }

    /// The weight, where it is packed.
    pub(crate) fn packed(&self) -> Option<&PackedWeight<B>> {
        match &self.weight {
            LinearWeight::Float(_) => None,
            LinearWeight::Packed(weight) => Some(weight),
        }
    }

    /// `[batch, seq, in]` to `[batch, seq, out]`, added to `residual` where there is one.
    pub fn forward(&self, x: Tensor<B, 3>, residual: Option<Tensor<B, 3>>) -> Tensor<B, 3> {
        let bias = self.bias.as_ref().map(Param::val);
        let adapted = self
            .adapter
            .as_ref()
            .map(|adapter| adapter.down(x.clone(), self.precision));
        let y = match &self.weight {
            LinearWeight::Float(weight) => {
                ops::linear(x, weight.val(), bias, residual, self.precision)
            }
            LinearWeight::Packed(weight) => ops::linear_packed(x, weight.clone(), bias, residual),
        };
        match (&self.adapter, adapted) {
            (Some(adapter), Some(down)) => adapter.up(down, y, self.precision),
            _ => y,
        }
    }

    /// The layer with an adapter in the place of any that it has. The weight and the bias are frozen: only the adapter is
    /// trained.
    pub fn with_adapter(self, adapter: LowRank<B>) -> Self {
        let frozen = self.no_grad();
        Self {
            adapter: Some(adapter),
            ..frozen
        }
    }

    /// Packs the weight and frees its floats. A weight that is packed stays as it is.
    pub(crate) fn pack(&mut self, format: PackedFormat) {
        if let LinearWeight::Float(weight) = &mut self.weight {
            // Without a second handle the floats are freed once they are copied in the order of rows, before they are packed.
            let nothing = Param::from_tensor(Tensor::empty([0, 0], &weight.device()));
            let floats = std::mem::replace(weight, nothing).into_value();
            self.weight = LinearWeight::Packed(ops::pack(floats.transpose(), format));
        }
    }
}

/// The configuration of a [`Linear`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearConfig {
    /// Elements of the input.
    pub d_input: usize,
    /// Elements of the output.
    pub d_output: usize,
    /// True if it has a bias.
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
        self.init_from(&from, "", OutputRole::Hidden)
    }

    pub(crate) fn init_from<B: Backend>(
        &self,
        from: &Initializer<'_, B>,
        path: &str,
        into: OutputRole,
    ) -> Linear<B> {
        let shape = [self.d_input, self.d_output];
        Linear::init(from, path, shape, self.bias, into)
    }
}
