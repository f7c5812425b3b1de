//! Heads of an encoder.

use burn::module::{Module, Param};
use burn::tensor::backend::Backend as BurnBackend;
use burn::tensor::{Bool, Int, Tensor};

use emberlm_kernels::{Activation, Backend, HeadLossOptions, Precision, ops};

use crate::config::{EncoderHeadConfig, PooledActivation, Pooling};
use crate::nn::dropout::dropout;
use crate::nn::init::{Initializer, OutputRole};
use crate::nn::linear::{Linear, LinearConfig};
use crate::nn::norm::{Norm, NormConfig};
use crate::nn::token_table::TokenTable;
use crate::transformer::checked::TransformerConfig;

/// The head of an encoder.
#[derive(Module, Debug)]
pub enum EncoderHead<B: BurnBackend> {
    /// `tanh(dense(x))` of the first token's state, `[d_model, d_model]`.
    Pooler(Linear<B>),
    /// Token logits.
    MaskedLm(MaskedLmHead<B>),
    /// Label logits of a text.
    Sequence(SequenceClassifier<B>),
    /// Label logits of each token.
    Token(TokenClassifier<B>),
}

/// `norm(f(dense(x))) · Eᵀ + bias`, with the token embedding `E`.
#[derive(Module, Debug)]
pub struct MaskedLmHead<B: BurnBackend> {
    /// `[d_model, d_model]`.
    pub dense: Linear<B>,
    /// Norm before the projection.
    pub norm: Norm<B>,
    /// Bias of the projection, `[vocab_size]`, if any.
    pub bias: Option<Param<Tensor<B, 1>>>,
    #[module(skip)]
    activation: Activation,
    #[module(skip)]
    precision: Precision,
}

/// `out(dropout(norm(f(dense(x)))))` of a text's pooled states, with an optional norm.
#[derive(Module, Debug)]
pub struct SequenceClassifier<B: BurnBackend> {
    /// `[d_model, d_model]`.
    pub dense: Linear<B>,
    /// Norm after the activation, if any.
    pub norm: Option<Norm<B>>,
    /// `[d_model, labels]`.
    pub out: Linear<B>,
    #[module(skip)]
    activation: PooledActivation,
    #[module(skip)]
    pooling: Pooling,
    #[module(skip)]
    dropout: f64,
}

/// `out(x)`, or `out(norm(f(dense(x))))`, of each token's state.
#[derive(Module, Debug)]
pub struct TokenClassifier<B: BurnBackend> {
    /// `[d_model, d_model]`, if any.
    pub dense: Option<Linear<B>>,
    /// Norm after the activation, if any.
    pub norm: Option<Norm<B>>,
    /// `[d_model, labels]`.
    pub out: Linear<B>,
    #[module(skip)]
    activation: PooledActivation,
}

impl<B: Backend> EncoderHead<B> {
    pub(crate) fn init_from(
        head: &EncoderHeadConfig,
        encoder: &TransformerConfig,
        from: &Initializer<'_, B>,
    ) -> Self {
        let d_model = encoder.d_model();
        let biased = |name: &str, width: usize, bias: bool| {
            LinearConfig::new(d_model, width).with_bias(bias).init_from(
                from,
                &format!("head.{name}"),
                OutputRole::Hidden,
            )
        };
        let layer = |name: &str, width: usize| biased(name, width, true);
        let norm = || NormConfig::new(encoder.norm(), d_model).init(from.device());
        match head {
            EncoderHeadConfig::Pooler => Self::Pooler(layer("dense", d_model)),
            EncoderHeadConfig::MaskedLm {
                activation,
                dense_bias,
                bias,
            } => Self::MaskedLm(MaskedLmHead {
                dense: biased("dense", d_model, *dense_bias),
                norm: norm(),
                bias: bias.then(|| from.bias("head.bias", encoder.vocab_size(), d_model)),
                activation: *activation,
                precision: Precision::default(),
            }),
            EncoderHeadConfig::Sequence {
                labels,
                activation,
                pooling,
                dense_bias,
                norm: has_norm,
                problem: _,
            } => Self::Sequence(SequenceClassifier {
                dense: biased("dense", d_model, *dense_bias),
                norm: has_norm.then(norm),
                out: layer("out", labels.len()),
                activation: *activation,
                pooling: *pooling,
                dropout: encoder.dropout(),
            }),
            EncoderHeadConfig::Token {
                labels,
                layer: before,
            } => Self::Token(TokenClassifier {
                dense: before.map(|before| biased("dense", d_model, before.bias)),
                norm: before.map(|_| norm()),
                out: layer("out", labels.len()),
                activation: before.map_or(PooledActivation::Tanh, |before| before.activation),
            }),
        }
    }

    /// Sets the precision of the matrix products.
    pub(crate) fn set_precision(&mut self, precision: Precision) {
        let linears = match self {
            Self::Pooler(dense) => vec![dense],
            Self::MaskedLm(head) => {
                head.precision = precision;
                vec![&mut head.dense]
            }
            Self::Sequence(classifier) => vec![&mut classifier.dense, &mut classifier.out],
            Self::Token(classifier) => {
                let dense = classifier.dense.iter_mut();
                dense.chain([&mut classifier.out]).collect()
            }
        };
        for linear in linears {
            linear.precision = precision;
        }
    }

    /// Maps `[batch, seq, d_model]` to the logits of every token; `tokens` is the token embedding.
    pub(super) fn token_logits(
        &self,
        states: Tensor<B, 3>,
        tokens: &TokenTable<B>,
    ) -> Option<Tensor<B, 3>> {
        match self {
            Self::MaskedLm(head) => Some(head.forward(states, tokens)),
            Self::Token(classifier) => {
                let hidden = classifier.hidden(states);
                Some(classifier.out.forward(hidden, None))
            }
            Self::Pooler(_) | Self::Sequence(_) => None,
        }
    }

    /// The loss of [`Transformer::head_loss_sum`](crate::Transformer::head_loss_sum); `tokens` is the token embedding.
    pub(super) fn loss_sum(
        &self,
        states: Tensor<B, 3>,
        padding: Option<Tensor<B, 2, Bool>>,
        tokens: &TokenTable<B>,
        targets: Tensor<B, 2, Int>,
        options: HeadLossOptions,
    ) -> Option<Tensor<B, 1>> {
        let [batch, seq, width] = states.dims();
        let targets = || targets.clone().flatten(0, 1);
        match self {
            Self::Pooler(_) => None,
            Self::MaskedLm(head) => {
                let hidden = head.hidden(states); // [batch · seq, d_model]
                let bias = head.bias.as_ref().map(Param::val);
                Some(tokens.head_loss(hidden, bias, targets(), options, head.precision))
            }
            Self::Sequence(classifier) => {
                let pooled = classifier.pooling.forward_padded(states, padding);
                let hidden = classifier.hidden(pooled); // [batch, d_model]
                Some(loss_of_linear(&classifier.out, hidden, targets(), options))
            }
            Self::Token(classifier) => {
                let hidden = classifier.hidden(states).reshape([batch * seq, width]);
                Some(loss_of_linear(&classifier.out, hidden, targets(), options))
            }
        }
    }
}

/// The cross-entropy of the logits of a linear layer. The bias is an additional input of 1, as in
/// [`TokenTable::head_loss`].
fn loss_of_linear<B: Backend>(
    out: &Linear<B>,
    hidden: Tensor<B, 2>,
    targets: Tensor<B, 1, Int>,
    options: HeadLossOptions,
) -> Tensor<B, 1> {
    let weight = out.weight.val().transpose(); // [labels, d_model]
    let (hidden, weight) = match &out.bias {
        Some(bias) => {
            let ones = Tensor::ones([hidden.dims()[0], 1], &hidden.device());
            let bias = bias.val().unsqueeze_dim(1);
            (
                Tensor::cat(vec![hidden, ones], 1),
                Tensor::cat(vec![weight, bias], 1),
            )
        }
        None => (hidden, weight),
    };
    ops::head_loss(hidden, vec![weight], targets, options, out.precision)
}

impl<B: Backend> MaskedLmHead<B> {
    /// Maps `[batch, seq, d_model]` to `[batch, seq, vocab_size]`.
    fn forward(&self, states: Tensor<B, 3>, tokens: &TokenTable<B>) -> Tensor<B, 3> {
        let [batch, seq, _] = states.dims();
        let hidden = self.hidden(states);
        let bias = self.bias.as_ref().map(Param::val);
        let logits = tokens.logits(hidden, bias, self.precision); // [batch · seq, vocab_size]
        let vocab_size = logits.dims()[1];
        logits.reshape([batch, seq, vocab_size])
    }

    /// Maps `[batch, seq, d_model]` to the input of the projection, `[batch · seq, d_model]`.
    fn hidden(&self, states: Tensor<B, 3>) -> Tensor<B, 2> {
        let [batch, seq, width] = states.dims();
        let hidden = ops::activation(self.activation, self.dense.forward(states, None));
        self.norm.forward(hidden).reshape([batch * seq, width])
    }
}

impl<B: Backend> SequenceClassifier<B> {
    /// The pooling of a text's states.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// Maps pooled states `[texts, d_model]` to `[texts, labels]`.
    pub(super) fn forward(&self, pooled: Tensor<B, 2>) -> Tensor<B, 2> {
        let hidden = self.hidden(pooled).unsqueeze();
        self.out.forward(hidden, None).squeeze_dim(0)
    }

    /// Maps pooled states `[texts, d_model]` to the input of the last layer, `[texts, d_model]`.
    fn hidden(&self, pooled: Tensor<B, 2>) -> Tensor<B, 2> {
        let hidden: Tensor<B, 3> = self.dense.forward(pooled.unsqueeze(), None);
        let hidden = self.activation.forward(hidden);
        let hidden = match &self.norm {
            Some(norm) => norm.forward(hidden),
            None => hidden,
        };
        dropout(hidden.squeeze_dim(0), self.dropout)
    }
}

impl<B: Backend> TokenClassifier<B> {
    /// Maps `[batch, seq, d_model]` to the input of the last layer, of the same shape.
    fn hidden(&self, states: Tensor<B, 3>) -> Tensor<B, 3> {
        let Some(dense) = &self.dense else {
            return states;
        };
        let hidden = self.activation.forward(dense.forward(states, None));
        match &self.norm {
            Some(norm) => norm.forward(hidden),
            None => hidden,
        }
    }
}

impl PooledActivation {
    fn forward<B: Backend>(self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        match self {
            Self::Tanh => x.tanh(),
            Self::Other(activation) => ops::activation(activation, x),
        }
    }
}
