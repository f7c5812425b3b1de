//! The position-wise part of a block.

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend as BurnBackend;

use emberlm_kernels::{Activation, Backend, ops};

use crate::checked::DecoderConfig;
use crate::config::{DropoutSite, FeedForward};
use crate::dropout::dropout;
use crate::init::{Initializer, MapInto};
use crate::linear::Linear;

/// `down(f(up(x)))`, or gated `down(f(gate(x)) · up(x))`.
#[derive(Module, Debug)]
pub struct FeedForwardLayer<B: BurnBackend> {
    /// `[d_model, width]`.
    pub gate: Option<Linear<B>>,
    /// `[d_model, width]`.
    pub up: Linear<B>,
    /// `[width, d_model]`.
    pub down: Linear<B>,
    #[module(skip)]
    activation: Activation,
    #[module(skip)]
    hidden_dropout: f64,
}

impl<B: Backend> FeedForwardLayer<B> {
    pub(crate) fn init(from: &Initializer<'_, B>, path: &str, config: &DecoderConfig) -> Self {
        let (activation, gated, width) = match config.feed_forward {
            FeedForward::Dense { activation, width } => (activation, false, width),
            FeedForward::Gated { activation, width } => (activation, true, width),
        };
        let map = |name: &str, shape, into| {
            let path = format!("{path}.{name}");
            Linear::init(from, &path, shape, config.bias.feed_forward, into)
        };
        let widen = [config.d_model, width];
        Self {
            gate: gated.then(|| map("gate", widen, MapInto::Hidden)),
            up: map("up", widen, MapInto::Hidden),
            down: map("down", [width, config.d_model], MapInto::Residual),
            activation,
            hidden_dropout: config.dropout_at(DropoutSite::Hidden),
        }
    }

    /// `[batch, seq, d_model]` to the same, added to `residual` where there is one.
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
