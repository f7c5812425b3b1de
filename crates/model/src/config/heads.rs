//! Configuration of an encoder's head.

use emberlm_kernels::Activation;
use serde::{Deserialize, Serialize};

use crate::config::choices::{is_yes, yes};

/// The head of an encoder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum EncoderHeadConfig {
    /// `tanh(dense(first token's state))`.
    Pooler,
    /// Token logits `norm(f(dense(x))) · Eᵀ + b`, with the token embedding `E`.
    MaskedLm {
        /// The activation `f`.
        activation: Activation,
        /// True if the dense layer has a bias.
        #[serde(default = "yes", skip_serializing_if = "is_yes")]
        dense_bias: bool,
        /// True if the logits have the bias `b`.
        #[serde(default = "yes", skip_serializing_if = "is_yes")]
        bias: bool,
    },
    /// Label logits `out(f(dense(pooled states)))`, with an optional norm before `out`.
    Sequence {
        /// Names of the labels.
        labels: Vec<String>,
        /// The activation `f`.
        activation: PooledActivation,
        /// The pooling of the states: "first" (by default) or "mean".
        #[serde(default = "first", skip_serializing_if = "is_first")]
        pooling: Pooling,
        /// True if the dense layer has a bias.
        #[serde(default = "yes", skip_serializing_if = "is_yes")]
        dense_bias: bool,
        /// True if the model's norm follows the activation.
        #[serde(default, skip_serializing_if = "is_no")]
        norm: bool,
        /// The meaning of the logits.
        #[serde(default, skip_serializing_if = "ProblemType::is_single_label")]
        problem: ProblemType,
    },
    /// Label logits `out(x)`, or `out(norm(f(dense(x))))`, for every token.
    Token {
        /// Names of the labels.
        labels: Vec<String>,
        /// The layers before `out`, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        layer: Option<TokenLayer>,
    },
}

emberlm_system::named! {
    /// The meaning of the logits of a classifier of texts: `problem_type` in a `config.json`.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum ProblemType {
        /// Each text has one label.
        #[default]
        SingleLabelClassification = "single_label_classification",
        /// Each text has any number of labels.
        MultiLabelClassification = "multi_label_classification",
        /// The logits are numbers to predict.
        Regression = "regression",
    }
}

impl ProblemType {
    fn is_single_label(&self) -> bool {
        *self == Self::SingleLabelClassification
    }

    /// The scores of a text's labels, as the text classification pipeline of `transformers` computes them: the logits of a
    /// regression, the sigmoid of each logit with several labels per text or a single label, and the softmax otherwise.
    pub fn scores(self, logits: &[f32]) -> Vec<f32> {
        let logits = logits.iter().map(|&logit| f64::from(logit));
        let scores: Vec<f64> = match self {
            Self::Regression => logits.collect(),
            _ if self == Self::MultiLabelClassification || logits.len() == 1 => {
                logits.map(|logit| 1.0 / (1.0 + (-logit).exp())).collect()
            }
            _ => {
                let largest = logits.clone().fold(f64::NEG_INFINITY, f64::max);
                let powers = logits.map(|logit| (logit - largest).exp());
                let sum: f64 = powers.clone().sum();
                powers.map(|power| power / sum).collect()
            }
        };
        scores.into_iter().map(|score| score as f32).collect()
    }
}

/// The label with the highest score, and of equals the first. `None` without scores.
pub fn most_probable<'a>(labels: &'a [String], scores: &[f32]) -> Option<(&'a str, f32)> {
    let scored = labels.iter().zip(scores).rev();
    let best = scored.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    Some((best.0, *best.1))
}

/// The layers `norm(f(dense(x)))` of a classifier of tokens, with the model's norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenLayer {
    /// The activation `f`.
    pub activation: PooledActivation,
    /// True if the dense layer has a bias.
    pub bias: bool,
}

/// The activation between the two layers of a classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PooledActivation {
    /// `tanh(x)` (BERT and RoBERTa).
    Tanh,
    /// An activation of feed-forward layers (DistilBERT, ModernBERT).
    #[serde(untagged)]
    Other(Activation),
}

const fn first() -> Pooling {
    Pooling::First
}

fn is_first(pooling: &Pooling) -> bool {
    *pooling == Pooling::First
}

const fn is_no(flag: &bool) -> bool {
    !*flag
}

impl EncoderHeadConfig {
    /// A masked language model whose layers have biases.
    pub const fn masked_lm(activation: Activation) -> Self {
        Self::MaskedLm {
            activation,
            dense_bias: true,
            bias: true,
        }
    }

    /// A classifier of texts as BERT has it: the first token's state, a bias, and no norm.
    pub const fn sequence(labels: Vec<String>, activation: PooledActivation) -> Self {
        Self::Sequence {
            labels,
            activation,
            pooling: Pooling::First,
            dense_bias: true,
            norm: false,
            problem: ProblemType::SingleLabelClassification,
        }
    }

    /// The names of a classifier's labels; `None` for other heads.
    pub fn labels(&self) -> Option<&[String]> {
        match self {
            Self::Sequence { labels, .. } | Self::Token { labels, .. } => Some(labels),
            Self::Pooler | Self::MaskedLm { .. } => None,
        }
    }
}

/// The pooling of a text's final hidden states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// The mean of all states.
    #[default]
    Mean,
    /// The sum of all states divided by the square root of their number.
    MeanSqrtLength,
    /// The maximum of each element.
    Max,
    /// The first token's state.
    First,
    /// The last token's state.
    Last,
}
