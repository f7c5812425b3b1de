//! A linear layer, with its weight in f32 or packed, and an optional low-rank adapter.

use std::fmt::Debug;
use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Tensor};

use emberlm_kernels::{Activation, Backend, PackedFormat, Precision, ops};

use crate::nn::adapter_rows::AdapterRows;
use crate::nn::init::{Initializer, OutputRole};
use crate::nn::low_rank::{AdaptedRows, Adapter, adapted};
use crate::nn::packed_rows::PackedRows;
use crate::params::changed;

/// Receives the inputs of a linear layer.
pub trait InputRecorder: Debug + Send + Sync {
    /// Called in each pass with the inputs `[rows, columns]`, one row per token.
    fn record(&self, inputs: &[f32], columns: usize);
}

/// A linear layer `y = x W + b`; with an adapter, `y = x W + b + scale · (x A) B`, or DoRA's form of it.
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
    /// Weight W, `[in, out]`.
    pub weight: LinearWeight<B>,
    /// Bias b, `[out]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    /// Low-rank adapter of the weight.
    pub adapter: Option<Adapter<B>>,
    /// The adapters that rows of a ragged pass select by number; `None` for those that do not update this layer.
    pub(crate) bank: Vec<Option<Adapter<B>>>,
    #[module(skip)]
    pub(crate) precision: Precision,
    #[module(skip)]
    pub(crate) recorder: Option<Arc<dyn InputRecorder>>,
}

/// The weight of a linear layer.
#[derive(Module, Debug)]
pub enum LinearWeight<B: BurnBackend> {
    /// A parameter, `[in, out]`.
    Float(Param<Tensor<B, 2>>),
    /// Packed weight, `[out, in]`. It is not trained and therefore not a parameter.
    Packed(PackedRows<B>),
}

impl<B: BurnBackend> LinearWeight<B> {
    /// Applies `change`, which must keep the shape, to an f32 weight. A packed weight stays unchanged.
    pub fn mapped(self, change: impl FnOnce(Tensor<B, 2>) -> Tensor<B, 2>) -> Self {
        match self {
            Self::Float(weight) => Self::Float(weight.map(|weight| changed(weight, change))),
            Self::Packed(_) => self,
        }
    }
}

impl<B: BurnBackend> LinearWeight<B> {
    /// The weight's shape `[in, out]`.
    pub fn shape(&self) -> [usize; 2] {
        match self {
            Self::Float(weight) => {
                let shape = weight.lazy_shape();
                [shape[0], shape[1]]
            }
            Self::Packed(weight) => {
                let [out, fan_in] = weight.shape();
                [fan_in, out]
            }
        }
    }
}

impl<B: Backend> LinearWeight<B> {
    /// The weight in f32, `[in, out]`; a packed weight is unpacked.
    pub fn val(&self) -> Tensor<B, 2> {
        match self {
            Self::Float(weight) => weight.val(),
            Self::Packed(weight) => Tensor::cat(weight.values(), 0).transpose(),
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
        let weight = from.linear(&format!("{path}.weight"), shape, fan_in, into);
        Self {
            weight: LinearWeight::Float(weight),
            bias: bias.then(|| from.bias(&format!("{path}.bias"), out, fan_in)),
            adapter: None,
            bank: Vec::new(),
            precision: Precision::default(),
            recorder: None,
        }
    }

    /// The weight's shape `[in, out]`.
    pub fn shape(&self) -> [usize; 2] {
        self.weight.shape()
    }

    /// The packed weight, if it is packed.
    pub(crate) fn packed(&self) -> Option<&PackedRows<B>> {
        match &self.weight {
            LinearWeight::Float(_) => None,
            LinearWeight::Packed(weight) => Some(weight),
        }
    }

    /// Reports the inputs `[batch, seq, in]` to the recorder, if there is one.
    fn record(&self, x: &Tensor<B, 3>) {
        let Some(recorder) = &self.recorder else {
            return;
        };
        let [_, _, columns] = x.dims();
        let data = x.to_data();
        match data.as_slice::<f32>() {
            Ok(inputs) => recorder.record(inputs, columns),
            Err(_) => recorder.record(&data.iter::<f32>().collect::<Vec<_>>(), columns),
        }
    }

    /// Maps `[batch, seq, in]` to `[batch, seq, out]` and adds `residual` if given.
    pub fn forward(&self, x: Tensor<B, 3>, residual: Option<Tensor<B, 3>>) -> Tensor<B, 3> {
        self.run(x, residual, None)
    }

    /// [`Linear::forward`] with the adapter of each row.
    pub(crate) fn run(
        &self,
        x: Tensor<B, 3>,
        residual: Option<Tensor<B, 3>>,
        rows: Option<&AdapterRows>,
    ) -> Tensor<B, 3> {
        self.record(&x);
        let bias = self.bias.as_ref().map(Param::val);
        let base = |x, bias, residual| match &self.weight {
            LinearWeight::Float(weight) => {
                ops::linear(x, weight.val(), bias, residual, self.precision)
            }
            LinearWeight::Packed(weight) => weight.forward(x, bias, residual, self.precision),
        };
        let groups = self.adapted_rows(&x, rows);
        if groups.iter().all(|group| group.adapter.is_none()) {
            return base(x, bias, residual);
        }
        adapted(
            &groups,
            x,
            &self.weight,
            bias,
            residual,
            self.precision,
            base,
        )
    }

    /// The rows of `x` in groups with their adapters.
    fn adapted_rows(
        &self,
        x: &Tensor<B, 3>,
        rows: Option<&AdapterRows>,
    ) -> Vec<AdaptedRows<'_, B>> {
        let Some(rows) = rows else {
            return vec![AdaptedRows {
                adapter: self.adapter.as_ref(),
                rows: x.dims()[1],
            }];
        };
        let groups = rows.groups().iter().map(|group| AdaptedRows {
            adapter: self.adapter_of(group.adapter),
            rows: group.rows,
        });
        groups.collect()
    }

    /// An adapter of the bank by its number; without a number, the layer's own.
    fn adapter_of(&self, number: Option<usize>) -> Option<&Adapter<B>> {
        match number {
            Some(number) => self.bank.get(number)?.as_ref(),
            None => self.adapter.as_ref(),
        }
    }

    /// Maps `[batch, seq, in]` to `f` of the layer's output, `[batch, seq, out]`.
    pub fn activated(&self, kind: Activation, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.run_activated(kind, x, None)
    }

    /// [`Linear::activated`] with the adapter of each row.
    pub(crate) fn run_activated(
        &self,
        kind: Activation,
        x: Tensor<B, 3>,
        rows: Option<&AdapterRows>,
    ) -> Tensor<B, 3> {
        if self.is_adapted(&x, rows) {
            return ops::activation(kind, self.run(x, None, rows));
        }
        self.record(&x);
        let bias = self.bias.as_ref().map(Param::val);
        match &self.weight {
            LinearWeight::Float(weight) => {
                ops::linear_activation(kind, x, weight.val(), bias, self.precision)
            }
            LinearWeight::Packed(weight) => weight.activated(kind, x, bias, self.precision),
        }
    }

    /// Maps `[batch, seq, in]` to `f` of the gate's output times this layer's, `[batch, seq, out]`, with the adapter of each
    /// row.
    pub(crate) fn run_gated(
        &self,
        kind: Activation,
        gate: &Self,
        x: Tensor<B, 3>,
        rows: Option<&AdapterRows>,
    ) -> Tensor<B, 3> {
        let layers = [gate, self];
        let are_alike = gate.precision == self.precision;
        if let (LinearWeight::Float(of_gate), LinearWeight::Float(own)) =
            (&gate.weight, &self.weight)
            && are_alike
            && !layers.iter().any(|layer| layer.is_adapted(&x, rows))
        {
            layers.iter().for_each(|layer| layer.record(&x));
            let [gate_bias, bias] = layers.map(|layer| layer.bias.as_ref().map(Param::val));
            let (of_gate, own) = ((of_gate.val(), gate_bias), (own.val(), bias));
            return ops::gated_linear(kind, x, of_gate, own, self.precision);
        }
        let of_gate = gate.run(x.clone(), None, rows);
        ops::gated(kind, of_gate, self.run(x, None, rows))
    }

    /// Returns true if some row of `x` has an adapter.
    fn is_adapted(&self, x: &Tensor<B, 3>, rows: Option<&AdapterRows>) -> bool {
        let groups = self.adapted_rows(x, rows);
        groups.iter().any(|group| group.adapter.is_some())
    }

    /// Returns the layer with a new adapter, replacing any existing one. Weight and bias are frozen; only the adapter
    /// is trained.
    pub fn with_adapter(self, adapter: Adapter<B>) -> Self {
        let frozen = self.no_grad();
        Self {
            adapter: Some(adapter),
            ..frozen
        }
    }

    /// Adds the adapter to the weight and removes it. The weight is then in f32; without an adapter it stays unchanged.
    pub(crate) fn merge(&mut self) {
        if let Some(adapter) = self.adapter.take() {
            let merged = adapter.merged(&self.weight);
            self.weight = LinearWeight::Float(Param::from_tensor(merged));
        }
    }

    /// Packs the weight and frees its f32 values. A packed weight stays unchanged.
    pub(crate) fn pack(&mut self, format: PackedFormat) {
        if let LinearWeight::Float(weight) = &mut self.weight {
            // Taking the only handle lets the backend free the f32 values after transposing them, before packing.
            let placeholder = Param::from_tensor(Tensor::empty([0, 0], &weight.device()));
            let values = std::mem::replace(weight, placeholder).into_value();
            let packed = ops::pack(values.transpose(), format);
            self.weight = LinearWeight::Packed(PackedRows::of(vec![packed]));
        }
    }
}

/// Configuration of a [`Linear`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearConfig {
    /// Width of the input.
    pub d_input: usize,
    /// Width of the output.
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

    /// Returns the layer with or without a bias.
    pub const fn with_bias(self, bias: bool) -> Self {
        Self { bias, ..self }
    }

    /// Elements of the weight.
    pub(crate) fn weights(&self) -> u128 {
        self.d_input as u128 * self.d_output as u128
    }

    /// Elements of the weight and the bias.
    pub(crate) fn parameters(&self) -> u128 {
        self.weights() + if self.bias { self.d_output as u128 } else { 0 }
    }

    /// Builds a layer with PyTorch's initial weights, uniform in `±1/√d_input`, drawn from the backend's random state.
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
