//! Normalization layers with optional gain and bias.

use burn::module::{Module, Param};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Tensor, TensorData};

use emberlm_kernels::{Backend, ColumnGroups, ColumnNorms, Normalization, ops};

use crate::config;

/// Configuration of a [`Norm`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormConfig {
    /// Kind of normalization and its ε.
    pub kind: config::Norm,
    /// Size of the normalized dimension, which is the last one.
    pub width: usize,
}

impl NormConfig {
    /// A norm over `width` elements.
    pub const fn new(kind: config::Norm, width: usize) -> Self {
        Self { kind, width }
    }

    /// Returns two flags: the norm has a gain, and it has a bias.
    const fn gain_and_bias(&self) -> [bool; 2] {
        match self.kind {
            config::Norm::Layer { bias, .. } => [true, bias],
            config::Norm::Rms { .. } | config::Norm::OffsetRms { .. } => [true, false],
            config::Norm::UnitRms { .. } => [false, false],
        }
    }

    /// Number of parameter elements.
    pub(crate) fn parameters(&self) -> u128 {
        let vectors = self.gain_and_bias().into_iter().filter(|&exists| exists);
        vectors.count() as u128 * self.width as u128
    }

    /// Builds a norm with gain 1 and bias 0.
    pub fn init<B: Backend>(&self, device: &Device<B>) -> Norm<B> {
        let filled = |value: f32| {
            let data = TensorData::new(vec![value; self.width], [self.width]);
            Param::from_tensor(Tensor::from_data(data, device))
        };
        let (kind, offset) = match self.kind {
            config::Norm::Layer { epsilon, .. } => (Normalization::Layer { epsilon }, 0.0),
            config::Norm::Rms { epsilon } => (Normalization::Rms { epsilon }, 0.0),
            config::Norm::OffsetRms { epsilon } => (Normalization::Rms { epsilon }, 1.0),
            config::Norm::UnitRms { epsilon } => (Normalization::UnitRms { epsilon }, 0.0),
        };
        let [gain, bias] = self.gain_and_bias();
        Norm {
            gain: gain.then(|| filled(1.0 - offset)),
            bias: bias.then(|| filled(0.0)),
            offset,
            kind,
        }
    }
}

/// Computes `gain · normalized(x) + bias` over the last dimension.
///
/// ```
/// use burn::tensor::{Distribution, Tensor};
/// use burn_flex::Flex;
/// use emberlm_model::{config, nn::NormConfig};
///
/// let device = Default::default();
/// let norm = NormConfig::new(config::Norm::Rms { epsilon: 1e-6 }, 16).init::<Flex>(&device);
/// let x = Tensor::random([2, 3, 16], Distribution::Default, &device);
/// assert_eq!(norm.forward::<3>(x).dims(), [2, 3, 16]);
/// ```
#[derive(Module, Debug)]
pub struct Norm<B: BurnBackend> {
    /// Gain `[width]`; [`config::Norm::OffsetRms`] stores it without the 1.
    pub gain: Option<Param<Tensor<B, 1>>>,
    /// Bias `[width]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    /// Constant added to the stored gain.
    #[module(skip)]
    offset: f32,
    #[module(skip)]
    kind: Normalization,
}

impl<B: Backend> Norm<B> {
    /// Normalizes the last dimension of `x`, which must have the norm's width.
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let gain = self.whole_gain(&x);
        ops::normalize(self.kind, x, gain, self.bias_value())
    }

    /// Normalizes the groups of columns of `x` `[batch, seq, width]` with a norm for each set; both are of the same kind.
    pub(crate) fn of_columns(
        norms: [&Self; 2],
        counts: [usize; 2],
        x: Tensor<B, 3>,
        widths: [usize; 2],
    ) -> Tensor<B, 3> {
        let of_sets = |[first, second]: [Option<Tensor<B, 1>>; 2]| Some([first?, second?]);
        let gains = of_sets(norms.map(|norm| norm.whole_gain(&x)));
        let biases = of_sets(norms.map(Self::bias_value));
        let groups = |set: usize| ColumnGroups {
            count: counts[set],
            width: widths[set],
        };
        let columns = ColumnNorms {
            kind: norms[0].kind,
            sets: [groups(0), groups(1)],
        };
        ops::normalize_columns(columns, x, gains, biases)
    }

    /// The gain with the constant that is added to it.
    fn whole_gain<const D: usize>(&self, x: &Tensor<B, D>) -> Option<Tensor<B, 1>> {
        self.gain.as_ref().map(|gain| match self.offset {
            0.0 => gain.val(),
            // The gradient of the gain is then complete when that of `x` is.
            offset => ops::depending_on(gain.val(), x) + offset,
        })
    }

    fn bias_value(&self) -> Option<Tensor<B, 1>> {
        self.bias.as_ref().map(Param::val)
    }
}
