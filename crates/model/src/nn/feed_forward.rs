//! The feed-forward layer of a block.

use burn::module::Module;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Tensor};

use emberlm_kernels::{Activation, Backend, ops};

use crate::config::FeedForwardKind;
use crate::nn::adapter_rows::AdapterRows;
use crate::nn::context::FeedForwardContext;
use crate::nn::dropout::dropout;
use crate::nn::init::{Initializer, OutputRole};
use crate::nn::linear::{Linear, LinearConfig};
use crate::nn::mixture::{Mixture, Routing};
use crate::nn::probe::{LayerProbe, Point};

/// Configuration of a [`FeedForward`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FeedForwardConfig {
    /// Width of the input and the output.
    pub d_model: usize,
    /// Hidden width.
    pub width: usize,
    /// Dense or gated.
    pub kind: FeedForwardKind,
    /// Activation function.
    pub activation: Activation,
    /// True if the linear layers have biases.
    pub bias: bool,
    /// Probability of dropping a hidden element during training.
    pub dropout: f64,
}

impl FeedForwardConfig {
    /// `down(gelu(up(x)))` without biases or dropout.
    pub const fn new(d_model: usize, width: usize) -> Self {
        Self {
            d_model,
            width,
            kind: FeedForwardKind::Dense,
            activation: Activation::Gelu,
            bias: false,
            dropout: 0.0,
        }
    }

    /// The projections to the hidden width: the gate, if any, and `up`.
    pub(crate) fn widening(&self) -> (Option<LinearConfig>, LinearConfig) {
        let up = LinearConfig::new(self.d_model, self.width).with_bias(self.bias);
        match self.kind {
            FeedForwardKind::Dense => (None, up),
            FeedForwardKind::Gated => (Some(up), up),
        }
    }

    /// The projection back to `d_model`.
    pub(crate) fn down(&self) -> LinearConfig {
        LinearConfig::new(self.width, self.d_model).with_bias(self.bias)
    }

    /// The linear layers: gate, if any; up; down.
    pub(crate) fn linear_layers(&self) -> Vec<LinearConfig> {
        let (gate, up) = self.widening();
        gate.into_iter().chain([up, self.down()]).collect()
    }

    /// Builds a layer with the initial weights of [`LinearConfig::init`].
    pub fn init<B: Backend>(&self, device: &Device<B>) -> FeedForward<B> {
        self.init_from(&Initializer::standalone(self.d_model, device), "")
    }

    pub(crate) fn init_from<B: Backend>(
        &self,
        from: &Initializer<'_, B>,
        path: &str,
    ) -> FeedForward<B> {
        let (gate, up) = self.widening();
        let layer = |config: LinearConfig, name: &str, into| {
            config.init_from(from, &format!("{path}.{name}"), into)
        };
        FeedForward {
            gate: gate.map(|gate| layer(gate, "gate", OutputRole::Hidden)),
            up: layer(up, "up", OutputRole::Hidden),
            down: layer(self.down(), "down", OutputRole::Residual),
            activation: self.activation,
            hidden_dropout: self.dropout,
        }
    }
}

/// A feed-forward layer: `down(f(up(x)))`, or gated `down(f(gate(x)) · up(x))` (Shazeer 2020).
///
/// ```
/// use burn::tensor::{Distribution, Tensor};
/// use burn_flex::Flex;
/// use emberlm_model::{Activation, config::FeedForwardKind, nn::FeedForwardConfig};
///
/// let device = Default::default();
/// let config = FeedForwardConfig {
///     kind: FeedForwardKind::Gated,
///     activation: Activation::Silu,
///     ..FeedForwardConfig::new(16, 40)
/// };
/// let x = Tensor::random([2, 3, 16], Distribution::Default, &device);
/// assert_eq!(config.init::<Flex>(&device).forward(x, None).dims(), [2, 3, 16]);
/// ```
#[derive(Module, Debug)]
pub struct FeedForward<B: BurnBackend> {
    /// Gate projection `[d_model, width]`, if gated.
    pub gate: Option<Linear<B>>,
    /// Up projection `[d_model, width]`.
    pub up: Linear<B>,
    /// Down projection `[width, d_model]`.
    pub down: Linear<B>,
    #[module(skip)]
    activation: Activation,
    #[module(skip)]
    hidden_dropout: f64,
}

impl<B: Backend> FeedForward<B> {
    /// Maps `[batch, seq, d_model]` to the same shape and adds `residual` if given.
    pub fn forward(&self, x: Tensor<B, 3>, residual: Option<Tensor<B, 3>>) -> Tensor<B, 3> {
        self.run(x, residual, None)
    }

    /// [`FeedForward::forward`] with the adapter of each row.
    pub(crate) fn run(
        &self,
        x: Tensor<B, 3>,
        residual: Option<Tensor<B, 3>>,
        rows: Option<&AdapterRows>,
    ) -> Tensor<B, 3> {
        let hidden = dropout(self.hidden(x, rows), self.hidden_dropout);
        self.down.run(hidden, residual, rows)
    }

    /// [`FeedForward::run`] step by step.
    fn run_probed(
        &self,
        x: Tensor<B, 3>,
        residual: Option<Tensor<B, 3>>,
        rows: Option<&AdapterRows>,
        mut probe: LayerProbe<'_, B>,
    ) -> Tensor<B, 3> {
        let mut widened = |linear: &Linear<B>, point| {
            let hidden = linear.run(x.clone(), None, rows);
            probe.rows(point, hidden)
        };
        let hidden = match &self.gate {
            Some(gate) => {
                let of_gate = widened(gate, Point::FeedForwardPre);
                let linear = widened(&self.up, Point::FeedForwardLinear);
                ops::gated(self.activation, of_gate, linear)
            }
            None => ops::activation(self.activation, widened(&self.up, Point::FeedForwardPre)),
        };
        let hidden = probe.rows(Point::FeedForwardPost, hidden);
        let hidden = dropout(hidden, self.hidden_dropout);
        self.down.run(hidden, residual, rows)
    }

    /// [`FeedForward::forward`] without a residual and without dropout.
    pub(crate) fn forward_without_dropout(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.down.forward(self.hidden(x, None), None)
    }

    /// The input of the layer back to the residual stream, `[batch, seq, width]`.
    fn hidden(&self, x: Tensor<B, 3>, rows: Option<&AdapterRows>) -> Tensor<B, 3> {
        match &self.gate {
            Some(gate) => self.up.run_gated(self.activation, gate, x, rows),
            None => self.up.run_activated(self.activation, x, rows),
        }
    }

    /// The linear layers with their fields' names.
    pub(crate) fn linears(&self) -> impl Iterator<Item = (&'static str, &Linear<B>)> {
        let gate = self.gate.iter().map(|gate| ("gate", gate));
        gate.chain([("up", &self.up), ("down", &self.down)])
    }

    /// The linear layers in the order of [`FeedForward::linears`].
    pub(crate) fn linears_mut(&mut self) -> impl Iterator<Item = &mut Linear<B>> {
        let gate = self.gate.iter_mut();
        gate.chain([&mut self.up, &mut self.down])
    }
}

/// The feed-forward sublayer of a block.
// Burn does not implement `Module` for `Box`.
#[allow(clippy::large_enum_variant)]
#[derive(Module, Debug)]
pub enum FeedForwardLayer<B: BurnBackend> {
    /// One layer for all tokens.
    Dense(FeedForward<B>),
    /// Several, of which a router chooses some for each token.
    Experts(Mixture<B>),
}

impl<B: Backend> FeedForwardLayer<B> {
    /// Maps `[batch, seq, d_model]` to the same shape and adds `residual` if given. The routing of a mixture is added to
    /// `routings`.
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        residual: Option<Tensor<B, 3>>,
        routings: Option<&mut Vec<Routing<B>>>,
    ) -> Tensor<B, 3> {
        let context = FeedForwardContext {
            routings,
            ..FeedForwardContext::default()
        };
        self.run(x, residual, context)
    }

    /// [`FeedForwardLayer::forward`] with the adapter of each row.
    pub(crate) fn run(
        &self,
        x: Tensor<B, 3>,
        residual: Option<Tensor<B, 3>>,
        context: FeedForwardContext<'_, B>,
    ) -> Tensor<B, 3> {
        match self {
            Self::Dense(layer) => match context.probe {
                Some(probe) => layer.run_probed(x, residual, context.adapters, probe),
                None => layer.run(x, residual, context.adapters),
            },
            Self::Experts(mixture) => mixture.run(x, residual, context),
        }
    }

    /// The layer, if it is one for all tokens.
    pub fn dense(&self) -> Option<&FeedForward<B>> {
        match self {
            Self::Dense(layer) => Some(layer),
            Self::Experts(_) => None,
        }
    }

    /// The layer to change, if it is one for all tokens.
    pub fn dense_mut(&mut self) -> Option<&mut FeedForward<B>> {
        match self {
            Self::Dense(layer) => Some(layer),
            Self::Experts(_) => None,
        }
    }

    /// The linear layers except a router, with their paths in the sublayer.
    pub(crate) fn linears(&self) -> Box<dyn Iterator<Item = (String, &Linear<B>)> + '_> {
        match self {
            Self::Dense(layer) => {
                let linears = layer.linears();
                Box::new(linears.map(|(name, linear)| (name.to_owned(), linear)))
            }
            Self::Experts(mixture) => Box::new(mixture.linears()),
        }
    }

    /// The linear layers in the order of [`FeedForwardLayer::linears`].
    pub(crate) fn linears_mut(&mut self) -> Box<dyn Iterator<Item = &mut Linear<B>> + '_> {
        match self {
            Self::Dense(layer) => Box::new(layer.linears_mut()),
            Self::Experts(mixture) => Box::new(mixture.linears_mut()),
        }
    }
}
