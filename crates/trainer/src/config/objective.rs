//! The `[train.objective]` table: what a model learns to predict.

use documented::DocumentedFields;
use serde::{Deserialize, Serialize};

use super::check::{Range, check_all, check_count, require};
use super::grpo::GrpoConfig;
use super::model::RunModel;
use super::preference::{DpoConfig, KtoConfig, OrpoConfig, SimpoConfig};
use crate::error::TrainError;

/// The upper bound of the tokens of a sequence.
const MOST_TOKENS: usize = 1 << 24;

/// The training objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ObjectiveConfig {
    /// A decoder predicts each token from those before it.
    NextToken(NextTokenConfig),
    /// An encoder predicts masked tokens.
    Mlm(MlmConfig),
    /// An encoder predicts the label of a text.
    Classify(ClassifyConfig),
    /// An encoder–decoder predicts the spans that its source lacks.
    SpanCorruption(SpanCorruptionConfig),
    /// An encoder–decoder predicts a target text from a source text.
    Seq2seq(Seq2SeqConfig),
    /// A decoder learns preferences relative to the weights that it starts with.
    Dpo(DpoConfig),
    /// A decoder learns chosen texts, and to prefer them by their odds.
    Orpo(OrpoConfig),
    /// A decoder learns preferences by mean log-probabilities.
    Simpo(SimpoConfig),
    /// A decoder learns from completions with a label, relative to the weights that it starts with.
    Kto(KtoConfig),
    /// A decoder learns from the rewards of completions that it samples.
    Grpo(GrpoConfig),
}

/// Settings of [`ObjectiveConfig::NextToken`]: none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NextTokenConfig {}

/// Settings of [`ObjectiveConfig::Mlm`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct MlmConfig {
    /// The probability of choosing a token, or a word, to be predicted. Of chosen tokens 80 % are masked, 10 % replaced by a random token and 10 % kept.
    pub probability: f64,
    /// Choose all tokens of a word together.
    pub whole_words: bool,
}

/// Settings of [`ObjectiveConfig::Classify`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct ClassifyConfig {
    /// The field or column with the text.
    pub text: String,
    /// The field or column with the second text of a pair; records may lack it.
    pub text_pair: String,
    /// The field or column with the label.
    pub label: String,
}

/// Settings of [`ObjectiveConfig::SpanCorruption`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct SpanCorruptionConfig {
    /// The share of tokens that are removed.
    pub density: f64,
    /// The mean length of a removed span, in tokens.
    pub mean_span: f64,
}

/// Settings of [`ObjectiveConfig::Seq2seq`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct Seq2SeqConfig {
    /// The field or column with the source text.
    pub source: String,
    /// The field or column with the target text.
    pub target: String,
    /// A text before every source, such as "summarize: ".
    pub prefix: String,
    /// The longest target in tokens; the end of a longer one is cut off.
    pub target_tokens: usize,
}

impl Default for MlmConfig {
    fn default() -> Self {
        Self {
            probability: 0.15,
            whole_words: false,
        }
    }
}

impl Default for ClassifyConfig {
    fn default() -> Self {
        Self {
            text: "text".to_owned(),
            text_pair: "text_pair".to_owned(),
            label: "label".to_owned(),
        }
    }
}

/// The T5 paper's settings.
impl Default for SpanCorruptionConfig {
    fn default() -> Self {
        Self {
            density: 0.15,
            mean_span: 3.0,
        }
    }
}

impl Default for Seq2SeqConfig {
    fn default() -> Self {
        Self {
            source: "source".to_owned(),
            target: "target".to_owned(),
            prefix: String::new(),
            target_tokens: 128,
        }
    }
}

impl Default for ObjectiveConfig {
    fn default() -> Self {
        Self::NextToken(NextTokenConfig::default())
    }
}

impl ObjectiveConfig {
    /// The value of `kind`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NextToken(_) => "next_token",
            Self::Mlm(_) => "mlm",
            Self::Classify(_) => "classify",
            Self::SpanCorruption(_) => "span_corruption",
            Self::Seq2seq(_) => "seq2seq",
            Self::Dpo(_) => "dpo",
            Self::Orpo(_) => "orpo",
            Self::Simpo(_) => "simpo",
            Self::Kto(_) => "kto",
            Self::Grpo(_) => "grpo",
        }
    }

    /// True if the data is records instead of datasets of tokens.
    pub fn reads_records(&self) -> bool {
        matches!(self, Self::Classify(_) | Self::Seq2seq(_) | Self::Grpo(_)) || self.is_preference()
    }

    /// True if the records are preferences between completions.
    pub fn is_preference(&self) -> bool {
        matches!(
            self,
            Self::Dpo(_) | Self::Orpo(_) | Self::Simpo(_) | Self::Kto(_)
        )
    }

    /// True if the loss is computed from the log-probabilities of completions: of preferences, or sampled ones.
    pub(crate) fn is_of_completions(&self) -> bool {
        self.is_preference() || matches!(self, Self::Grpo(_))
    }

    /// True if the loss is a mean cross-entropy, whose exponential is a perplexity.
    pub(crate) fn has_perplexity(&self) -> bool {
        !self.is_of_completions()
    }

    /// The perplexity of a mean loss; see [`Self::has_perplexity`].
    pub(crate) fn perplexity(&self, loss: f64) -> Option<f64> {
        self.has_perplexity().then(|| loss.exp())
    }

    /// The sequences of a batch of `size`, which counts pairs of sequences if the objective learns from preferences.
    pub(crate) fn sequences(&self, size: usize) -> usize {
        match self.is_preference() {
            true => size.saturating_mul(2),
            false => size,
        }
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// Returns the first violated rule.
    pub(super) fn check(&self) -> Result<(), TrainError> {
        let table = "train.objective";
        match self {
            Self::NextToken(_) | Self::Classify(_) => Ok(()),
            Self::Dpo(config) => config.check(),
            Self::Orpo(config) => config.check(),
            Self::Simpo(config) => config.check(),
            Self::Kto(config) => config.check(),
            Self::Grpo(config) => config.check(),
            Self::Mlm(MlmConfig { probability, .. }) => {
                check_all(table, &[("probability", *probability, Range::Positive)])?;
                check_all(table, &[("probability", *probability, Range::Share)])
            }
            Self::SpanCorruption(SpanCorruptionConfig { density, mean_span }) => {
                let holds = *density > 0.0 && *density <= 0.9;
                let rule = "must be above 0 and at most 0.9";
                require(table, "density", density, holds, rule)?;
                let rule = "must be at least 1 and finite";
                let holds = mean_span.is_finite() && *mean_span >= 1.0;
                require(table, "mean_span", mean_span, holds, rule)?;
                check_all(
                    table,
                    &[
                        ("density", *density, Range::Positive),
                        ("mean_span", *mean_span, Range::Positive),
                    ],
                )
            }
            Self::Seq2seq(Seq2SeqConfig { target_tokens, .. }) => {
                check_count(table, "target_tokens", *target_tokens, 2, MOST_TOKENS)
            }
        }
    }

    /// Checks that the objective is one of `model`'s.
    ///
    /// # Errors
    /// It is another model's.
    pub fn check_model(&self, model: &RunModel) -> Result<(), TrainError> {
        let fits = match model {
            RunModel::Decoder(_) => {
                matches!(self, Self::NextToken(_) | Self::Grpo(_)) || self.is_preference()
            }
            RunModel::Encoder(_) => matches!(self, Self::Mlm(_) | Self::Classify(_)),
            RunModel::EncoderDecoder(_) => {
                matches!(self, Self::SpanCorruption(_) | Self::Seq2seq(_))
            }
        };
        match fits {
            true => Ok(()),
            false => Err(self.not_of(model)),
        }
    }

    /// The error of an objective that is not one of `model`'s.
    pub(crate) fn not_of(&self, model: &RunModel) -> TrainError {
        let rule = match model {
            RunModel::Decoder(_) => {
                "must be next_token, dpo, orpo, simpo, kto or grpo for a decoder"
            }
            RunModel::Encoder(_) => "must be mlm or classify for an encoder",
            RunModel::EncoderDecoder(_) => {
                "must be span_corruption or seq2seq for an encoder–decoder"
            }
        };
        TrainError::Setting {
            table: "train.objective",
            field: "kind",
            value: self.kind().to_owned(),
            rule: rule.to_owned(),
        }
    }
}
