//! The feed-forward layer of a block.

use burn::module::Module;
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Tensor};

use emberlm_kernels::{Activation, Backend, ops};

use crate::config::FeedForwardKind;
use crate::dropout::dropout;
use crate::init::{Initializer, OutputRole};
use crate::linear::{Linear, LinearConfig};

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
        let hidden = match &self.gate {
            Some(gate) => {
                let gate = gate.forward(x.clone(), None);
                ops::gated(self.activation, gate, self.up.forward(x, None))
            }
            None => ops::activation(self.activation, self.up.forward(x, None)),
        }; // [batch, seq, width]
        self.down
            .forward(dropout(hidden, self.hidden_dropout), residual)
    }
}
