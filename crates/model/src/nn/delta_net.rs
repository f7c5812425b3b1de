//! The gated delta net, an attention whose cost is linear in the sequence length.

use burn::module::{Module, Param};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Device, Int, Tensor, activation};

use emberlm_kernels::{Activation, Backend, DeltaRuleHeads, ops};

use crate::config;
use crate::nn::heads::{HeadSizes, take_heads};
use crate::nn::init::{Initializer, OutputRole};
use crate::nn::linear::{Linear, LinearConfig};
use crate::nn::norm::{Norm, NormConfig};

/// Settings of a gated delta net that other attentions lack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaNetConfig {
    /// Width of a head of values.
    pub value_dim: usize,
    /// Taps of the convolutions, at least 2.
    pub taps: usize,
    /// ε of the norm of the outputs.
    pub epsilon: f64,
}

impl DeltaNetConfig {
    /// Channels of the convolutions: the outputs of the projection to queries, keys and values.
    pub(crate) fn channels(&self, sizes: HeadSizes) -> usize {
        self.rule(sizes).channels()
    }

    fn rule(&self, sizes: HeadSizes) -> DeltaRuleHeads {
        DeltaRuleHeads {
            heads: sizes.heads,
            key_heads: sizes.key_heads,
            key_dim: sizes.key_dim,
            value_dim: self.value_dim,
        }
    }

    /// The projection to the rates and the decays.
    pub(crate) fn rates(&self, sizes: HeadSizes) -> LinearConfig {
        LinearConfig::new(sizes.d_model, 2 * sizes.heads)
    }

    fn norm(&self) -> NormConfig {
        let kind = config::Norm::Rms {
            epsilon: self.epsilon,
        };
        NormConfig::new(kind, self.value_dim)
    }

    /// Number of parameters without the projections of all attentions.
    pub(crate) fn parameters(&self, sizes: HeadSizes) -> u128 {
        let convolution = self.taps as u128 * self.channels(sizes) as u128;
        let decays = 2 * sizes.heads as u128;
        convolution + self.rates(sizes).parameters() + decays + self.norm().parameters()
    }

    pub(crate) fn init_from<B: Backend>(
        self,
        sizes: HeadSizes,
        from: &Initializer<'_, B>,
        path: &str,
    ) -> DeltaNet<B> {
        let (heads, channels) = (sizes.heads, self.channels(sizes));
        let shape = [self.taps, channels];
        let convolution = format!("{path}.convolution");
        let rates = format!("{path}.rates");
        DeltaNet {
            convolution: from.linear(&convolution, shape, self.taps, OutputRole::Hidden),
            rates: self
                .rates(sizes)
                .init_from(from, &rates, OutputRole::Hidden),
            decay: from.log_uniform(&format!("{path}.decay"), heads, LARGEST_DECAY),
            step_bias: from.constant(1.0, heads),
            norm: self.norm().init(from.device()),
            heads: self.rule(sizes),
        }
    }
}

/// The largest initial factor of the decays.
const LARGEST_DECAY: f64 = 16.0;

/// The part of an attention between its projections, with the gated delta rule (Yang et al. 2024,
/// [2412.06464](https://arxiv.org/abs/2412.06464)) as in Qwen3-Next.
///
/// ```text
/// q, k, v = silu(convolution(qkv))                         of each channel along the tokens
/// β = σ(b),  g = -e^decay · softplus(a + step_bias)        b, a = x W_rates, an element per head each
/// o = delta_rule(q / ‖q‖ / √key_dim, k / ‖k‖, v, g, β)     see `emberlm_kernels::ops::gated_delta_rule`
/// y = rms(o) · silu(gate)                                  over each head
/// ```
#[derive(Module, Debug)]
pub struct DeltaNet<B: BurnBackend> {
    /// The factors of the last tokens, the newest one last, `[taps, channels]`.
    pub convolution: Param<Tensor<B, 2>>,
    /// Projection to `b` and `a`, `[d_model, 2 · heads]`. It is never packed.
    pub rates: Linear<B>,
    /// The logarithm of the decay's factor, `[heads]`.
    pub decay: Param<Tensor<B, 1>>,
    /// `[heads]`.
    pub step_bias: Param<Tensor<B, 1>>,
    /// Norm of each head's output.
    pub norm: Norm<B>,
    #[module(skip)]
    heads: DeltaRuleHeads,
}

/// Summary of the tokens before in a [`DeltaNet`].
#[derive(Clone, Debug)]
pub struct DeltaState<B: BurnBackend> {
    /// The last inputs of the convolutions, `[batch, taps - 1, channels]`.
    pub inputs: Tensor<B, 3>,
    /// The memory of each head, `[batch, heads, key_dim, value_dim]`.
    pub memory: Tensor<B, 4>,
}

impl<B: BurnBackend> DeltaState<B> {
    pub(crate) fn device(&self) -> Device<B> {
        self.memory.device()
    }

    /// The states of the sequences with the given numbers, `[selected]`.
    pub(crate) fn select(self, rows: &Tensor<B, 1, Int>) -> Self {
        Self {
            inputs: self.inputs.select(0, rows.clone()),
            memory: self.memory.select(0, rows.clone()),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let elements = self.inputs.shape().num_elements() + self.memory.shape().num_elements();
        elements * self.memory.dtype().size()
    }
}

impl<B: Backend> DeltaNet<B> {
    /// Widths of queries, keys and values.
    pub(crate) fn widths(&self) -> [usize; 3] {
        let keys = self.heads.keys();
        [keys, keys, self.heads.values()]
    }

    /// `[b, a]` of the rows `[batch, seq, d_model]`, each `[batch, seq, heads]`.
    pub(crate) fn rates(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.rates.forward(x, None)
    }

    /// The outputs of all heads, `[batch, seq, heads · value_dim]`, before their norm, and the state after the tokens. `qkv` is
    /// `[batch, seq, channels]`, `rates` is the output of [`DeltaNet::rates`].
    pub(crate) fn mix(
        &self,
        qkv: Tensor<B, 3>,
        rates: Tensor<B, 3>,
        past: Option<DeltaState<B>>,
    ) -> (Tensor<B, 3>, DeltaState<B>) {
        let (inputs, memory) = match past {
            Some(past) => (Some(past.inputs), Some(past.memory)),
            None => (None, None),
        };
        // So that the gradients of the parameters are complete with those of the block.
        let [step_bias, decay] = [&self.step_bias, &self.decay]
            .map(|of| ops::depending_on(of.val(), &qkv).unsqueeze::<3>());
        let convolution = ops::depending_on(self.convolution.val(), &qkv);
        let (qkv, inputs) = ops::short_convolution(qkv, convolution, inputs);
        let qkv = ops::activation(Activation::Silu, qkv);
        let heads = self.heads.heads;
        let of_heads = |first: usize| rates.clone().narrow(2, first, heads);
        let step = ops::softplus(of_heads(heads) + step_bias);
        let decay = step * decay.exp().neg();
        let rate = activation::sigmoid(of_heads(0));
        let (mixed, memory) = ops::gated_delta_rule(self.heads, qkv, [decay, rate], memory);
        (mixed, DeltaState { inputs, memory })
    }

    /// The outputs of each head, `[batch, heads, seq, value_dim]`.
    pub(crate) fn by_head(&self, mixed: &Tensor<B, 3>) -> Tensor<B, 4> {
        take_heads(mixed, 0..self.heads.heads, self.heads.value_dim)
    }

    /// Normalizes the heads of `mixed` `[batch, seq, heads · value_dim]` and multiplies them by the gate of its shape.
    pub(crate) fn gated(&self, mixed: Tensor<B, 3>, gate: Tensor<B, 3>) -> Tensor<B, 3> {
        let [batch, seq, width] = mixed.dims();
        let heads = [batch, seq, self.heads.heads, self.heads.value_dim];
        let normed = self.norm.forward(mixed.reshape(heads));
        ops::gated(Activation::Silu, gate, normed.reshape([batch, seq, width]))
    }
}
